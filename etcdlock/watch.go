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
// stream breaks; each waiter then reads the store again.
type hub struct {
	etcd *clientv3.Client

	mu     sync.Mutex
	stream *stream // nil: none yet, or it broke
	last   int64   // id of the last watch
	closed bool
	alive  sync.WaitGroup
}

// stream is one stream of watches, with a goroutine that sends and one that
// receives: a goroutine that begins a watch must not be held up by either.
type stream struct {
	cancel context.CancelFunc
	// Guarded by the hub's mutex.
	watches map[int64]*watch
	queue   []*etcdserverpb.WatchRequest // to be sent
	pending chan struct{}                // one value: there is something in the queue
}

// watch is one watch of a key or a range.
type watch struct {
	id     int64
	stream *stream
	notify func(event) // called by the stream's goroutine; must not block
}

// event is what a watch brings.
type event struct {
	what happening
	key  string
	rev  int64 // of the change; of begun: of the store when the watch had begun, or later
}

type happening uint8

const (
	begun   happening = iota // all changes from here on are told
	deleted                  // a key was deleted
	put                      // a key has got another value
	over                     // no more events come
)

// watch begins to watch a key, or the range from key to end. Puts are told
// only on demand. The first event is begun, or over.
func (h *hub) watch(key, end string, puts bool, notify func(event)) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		go notify(event{what: over}) // as always, not by the caller
		return &watch{}
	}
	st := h.stream
	if st == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
		st = &stream{cancel: cancel, watches: map[int64]*watch{}, pending: make(chan struct{}, 1)}
		h.stream = st
		h.alive.Go(func() { h.run(ctx, st) })
	}
	h.last++
	w := &watch{id: h.last, stream: st, notify: notify}
	st.watches[w.id] = w
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

// end ends a watch; no events of it come after that but those under way.
func (h *hub) end(w *watch) {
	if w == nil || w.stream == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := w.stream.watches[w.id]; ok {
		delete(w.stream.watches, w.id)
		w.stream.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: w.id},
		}})
	}
}

// send leaves a request to the goroutine that sends.
func (st *stream) send(r *etcdserverpb.WatchRequest) {
	st.queue = append(st.queue, r)
	select {
	case st.pending <- struct{}{}:
	default:
	}
}

// run opens the stream and receives, until it breaks.
func (h *hub) run(ctx context.Context, st *stream) {
	defer h.broke(st)
	g, err := etcdserverpb.NewWatchClient(h.etcd.ActiveConnection()).Watch(ctx)
	if err != nil {
		return
	}
	h.alive.Go(func() { h.send(ctx, st, g) })
	for {
		r, err := g.Recv()
		if err != nil || r.Canceled && r.WatchId == clientv3.InvalidWatchID {
			return // broken, or a watch is refused and nobody knows which
		}
		h.dispatch(st, r)
	}
}

// send sends what is in the queue. If it fails, the stream fails for the other goroutine
// too.
func (h *hub) send(ctx context.Context, st *stream, g etcdserverpb.Watch_WatchClient) {
	for {
		select {
		case <-st.pending:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		requests := st.queue
		st.queue = nil
		h.mu.Unlock()
		for _, r := range requests {
			if g.Send(r) != nil {
				return
			}
		}
	}
}

// dispatch passes the server's events on.
func (h *hub) dispatch(st *stream, r *etcdserverpb.WatchResponse) {
	h.mu.Lock()
	w := st.watches[r.WatchId]
	if r.Canceled {
		delete(st.watches, r.WatchId)
	}
	h.mu.Unlock()
	switch {
	case w == nil:
	case r.Canceled:
		w.notify(event{what: over})
	case r.Created:
		w.notify(event{what: begun, rev: r.Header.GetRevision()})
	default:
		for _, e := range r.Events {
			what := put
			if e.Type == mvccpb.Event_DELETE {
				what = deleted
			}
			w.notify(event{what, string(e.Kv.Key), e.Kv.ModRevision})
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
		w.notify(event{what: over})
	}
}

// reset breaks the stream of a watch that seems to be dead.
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
