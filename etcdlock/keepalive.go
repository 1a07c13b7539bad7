package etcdlock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// keepAlives is one stream on which a client keeps all its leases alive. Each stream that is opened
// costs a server with users a check of the password, and an entry in its log: too much for each sign
// of life. A member answers the requests of a stream in their order.
type keepAlives struct {
	route  *clientv3.Client
	cancel context.CancelFunc

	mu      sync.Mutex
	unsent  []*keepAlive
	asked   []*keepAlive  // without an answer yet, the oldest first, sent or not
	pending chan struct{} // one value: there is something unsent
	made    time.Time
	opened  bool
	heard   time.Time // when the last answer came, or the stream was opened
	broken  error     // nil: the stream can be used
}

// keepAlive is one request.
type keepAlive struct {
	id     clientv3.LeaseID
	at     time.Time
	answer chan keptAlive // with room for one: who asked may have gone
}

type keptAlive struct {
	ttl int64 // in seconds; 0: the lease has ended
	err error
}

// keepAlive asks once, and returns the seconds that the lease lasts from now: 0 if it has ended. A
// stream that breaks, or on which nothing is heard, is replaced by another, as a rule to another member.
// The library's own function asks again and again, without a pause.
func (c *client) keepAlive(ctx context.Context, id clientv3.LeaseID, secs int64) (int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	st, fresh, err := c.keepAliveStream()
	for {
		if err != nil {
			return 0, err
		}
		kept := st.ask(ctx, id, max(pulse(secs), time.Second))
		if kept.err == nil || fresh || ctx.Err() != nil {
			return kept.ttl, ended(ctx, clientv3.ContextError(ctx, kept.err))
		}
		st, fresh, err = c.keepAliveStream()
	}
}

// keepAliveStream returns the client's stream, and whether it was made just now.
func (c *client) keepAliveStream() (st *keepAlives, fresh bool, err error) {
	route := c.spareRoute().etcd
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, false, driver.ErrClosed
	}
	if st := c.kept; st != nil && st.route == route && st.usable() {
		return st, false, nil
	}
	if c.kept != nil {
		c.kept.cancel()
	}
	ctx, cancel := context.WithCancel(requireLeader(c.life))
	st = &keepAlives{route: route, cancel: cancel, pending: make(chan struct{}, 1), made: time.Now()}
	c.kept = st
	c.background.Go(func() { st.run(ctx) })
	return st, true, nil
}

func (st *keepAlives) usable() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.broken == nil
}

// ask sends a request and waits for its answer. It ends the stream if nothing is heard for as long as patience.
func (st *keepAlives) ask(ctx context.Context, id clientv3.LeaseID, patience time.Duration) keptAlive {
	k := &keepAlive{id, time.Now(), make(chan keptAlive, 1)}
	st.mu.Lock()
	if st.broken != nil {
		defer st.mu.Unlock()
		return keptAlive{err: st.broken}
	}
	st.unsent, st.asked = append(st.unsent, k), append(st.asked, k)
	st.mu.Unlock()
	select {
	case st.pending <- struct{}{}:
	default:
	}
	impatient := time.NewTicker(patience)
	defer impatient.Stop()
	for {
		select {
		case kept := <-k.answer:
			return kept
		case <-impatient.C:
			st.endIfSilent(patience)
		case <-ctx.Done():
			st.endIfSilent(patience)
			return keptAlive{err: ctx.Err()}
		}
	}
}

// endIfSilent ends the stream if the oldest request waits, and nothing is heard, for as long as patience. A
// server that is slow still answers others, and another stream would be more work for it. To open one may
// take longest of all.
func (st *keepAlives) endIfSilent(patience time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	since := st.made
	if !st.opened {
		patience = requestWithin
	} else if since = st.heard; len(st.asked) > 0 && st.asked[0].at.After(since) {
		since = st.asked[0].at
	}
	if len(st.asked) > 0 && time.Since(since) >= patience {
		st.cancel()
	}
}

// run opens the stream and receives, until it breaks.
func (st *keepAlives) run(ctx context.Context) {
	defer st.cancel()
	stream, err := etcdserverpb.NewLeaseClient(st.route.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		st.fail(err)
		return
	}
	st.mu.Lock()
	st.opened, st.heard = true, time.Now()
	st.mu.Unlock()
	var sending sync.WaitGroup
	sending.Go(func() { st.send(ctx, stream) })
	defer sending.Wait()
	defer st.cancel()
	for {
		resp, err := stream.Recv()
		if err == nil {
			err = st.heardOf(resp)
		}
		if err != nil {
			st.fail(err)
			return
		}
	}
}

// send sends what is unsent. If it fails, receiving fails too, and says why.
func (st *keepAlives) send(ctx context.Context, stream etcdserverpb.Lease_LeaseKeepAliveClient) {
	for {
		select {
		case <-st.pending:
		case <-ctx.Done():
			return
		}
		st.mu.Lock()
		unsent := st.unsent
		st.unsent = nil
		st.mu.Unlock()
		for _, k := range unsent {
			if stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(k.id)}) != nil {
				return
			}
		}
	}
}

// heardOf gives an answer to the oldest request. It must not be taken for that of a later one: the lease
// would be trusted for longer than it lasts (P1).
func (st *keepAlives) heardOf(resp *etcdserverpb.LeaseKeepAliveResponse) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.asked) == 0 || int64(st.asked[0].id) != resp.ID {
		return errors.New("etcd has answered what was not asked")
	}
	st.heard = time.Now()
	st.asked[0].answer <- keptAlive{ttl: resp.TTL}
	st.asked = st.asked[1:]
	return nil
}

// fail ends the stream for all that wait on it.
func (st *keepAlives) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.broken = err
	for _, k := range st.asked {
		k.answer <- keptAlive{err: err}
	}
	st.asked, st.unsent = nil, nil
}
