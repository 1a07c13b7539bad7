package etcdlock

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// hub is the client's one stream of watches. The client library would keep a
// goroutine for each watch, and would resume each from where it was: after such a
// resumption etcd tells events by a ticker of 100 ms, because it serves at once
// only watches that begin now. Here every watch begins now, and is over when the
// stream breaks; whoever waits then looks at the store again.
type hub struct {
	etcd *clientv3.Client

	mu     sync.Mutex
	stream *stream // nil: none yet, or it broke
	last   int64   // id of the last watch
	closed bool
	alive  sync.WaitGroup
}

// stream is one stream of watches, with one goroutine that receives.
type stream struct {
	cancel  context.CancelFunc
	sending sync.Mutex                     // one Send at a time
	grpc    etcdserverpb.Watch_WatchClient // nil: not open yet
	queue   []*etcdserverpb.WatchRequest   // to be sent when it is
	watches map[int64]*watch               // guarded by the hub's mutex
}

// watch is one watch of a key or a range.
type watch struct {
	id     int64
	stream *stream
	hear   func(event) // called by the stream's goroutine; must not block
}

// event is what a watch hears.
type event struct {
	watch *watch
	what  happening
	key   string
	rev   int64 // of the store when the watch had begun
}

type happening uint8

const (
	begun   happening = iota // whatever happens from here on is heard
	deleted                  // a key is gone
	put                      // a key has got another value
	over                     // nothing more is heard
)

// watch begins to watch a key, or the range from key to end. Puts are heard of
// only on demand. The first event is begun, or over.
func (h *hub) watch(key, end string, puts bool, hear func(event)) *watch {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		w := &watch{}
		hear(event{watch: w, what: over})
		return w
	}
	st := h.stream
	if st == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
		st = &stream{cancel: cancel, watches: map[int64]*watch{}}
		h.stream = st
		h.alive.Go(func() { h.run(ctx, st) })
	}
	h.last++
	w := &watch{id: h.last, stream: st, hear: hear}
	st.watches[w.id] = w
	h.mu.Unlock()
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(key), WatchId: w.id}
	if end != "" {
		create.RangeEnd = []byte(end)
	}
	if !puts {
		create.Filters = []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT}
	}
	st.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}})
	return w
}

// end ends a watch; nothing is heard of it after that but what is under way.
func (h *hub) end(w *watch) {
	if w == nil || w.stream == nil {
		return
	}
	h.mu.Lock()
	_, ok := w.stream.watches[w.id]
	delete(w.stream.watches, w.id)
	h.mu.Unlock()
	if ok {
		w.stream.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: w.id},
		}})
	}
}

// send sends, or leaves it to the goroutine that opens the stream. If it fails the
// goroutine hears of it too.
func (st *stream) send(r *etcdserverpb.WatchRequest) {
	st.sending.Lock()
	defer st.sending.Unlock()
	if st.grpc == nil {
		st.queue = append(st.queue, r)
		return
	}
	st.grpc.Send(r)
}

// run opens the stream and hears what comes, until it breaks.
func (h *hub) run(ctx context.Context, st *stream) {
	defer h.broke(st)
	g, err := etcdserverpb.NewWatchClient(h.etcd.ActiveConnection()).Watch(ctx)
	if err != nil {
		return
	}
	st.sending.Lock()
	st.grpc = g
	for _, r := range st.queue {
		g.Send(r)
	}
	st.queue = nil
	st.sending.Unlock()
	for {
		r, err := g.Recv()
		if err != nil || r.Canceled && r.WatchId == clientv3.InvalidWatchID {
			return // broken, or a watch is refused and nobody knows which
		}
		h.heard(st, r)
	}
}

// heard passes on what the server says.
func (h *hub) heard(st *stream, r *etcdserverpb.WatchResponse) {
	h.mu.Lock()
	w := st.watches[r.WatchId]
	if r.Canceled {
		delete(st.watches, r.WatchId)
	}
	h.mu.Unlock()
	switch {
	case w == nil:
	case r.Canceled:
		w.hear(event{watch: w, what: over})
	case r.Created:
		w.hear(event{watch: w, what: begun, rev: r.Header.GetRevision()})
	default:
		for _, e := range r.Events {
			what := put
			if e.Type == mvccpb.Event_DELETE {
				what = deleted
			}
			w.hear(event{watch: w, what: what, key: string(e.Kv.Key)})
		}
	}
}

// broke ends a stream and all watches on it.
func (h *hub) broke(st *stream) {
	st.cancel()
	h.mu.Lock()
	if h.stream == st {
		h.stream = nil
	}
	watches := st.watches
	st.watches = nil // reads find nothing, deletes do nothing
	h.mu.Unlock()
	for _, w := range watches {
		w.hear(event{watch: w, what: over})
	}
}

// reset breaks the stream of a watch, which seems to be dead.
func (h *hub) reset(w *watch) {
	if w.stream != nil {
		w.stream.cancel()
	}
}

// close ends everything and waits for the goroutine.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	st := h.stream
	h.mu.Unlock()
	if st != nil {
		st.cancel()
	}
	h.alive.Wait()
}
