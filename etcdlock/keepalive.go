package etcdlock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfastlock/holdfast/driver"
)

// keepAlives is one stream on which a client keeps all its leases alive. Each stream that is opened
// costs a server with users a check of the password, and an entry in its log: too much for each sign
// of life. A member answers the requests of a stream in their order.
type keepAlives struct {
	duplex[etcdserverpb.LeaseKeepAliveRequest, etcdserverpb.LeaseKeepAliveResponse]
	route *clientv3.Client

	mu     sync.Mutex
	asked  []*keepAlive // without an answer yet, the oldest first, sent or not
	heard  time.Time    // when the last answer came, or the stream was opened, or is to be opened at the latest
	broken error        // nil: the stream can be used
}

// keepAlive is one request.
type keepAlive struct {
	id     clientv3.LeaseID
	at     time.Time
	answer chan int64 // the TTL, with room for one: who asked may have gone. Closed: the stream is broken
}

// keepAlive asks once, and returns the seconds that the lease lasts from now: 0 if it has ended. A
// stream that breaks, or on which nothing is heard, is replaced by another, as a rule to another member.
// The library's own function asks again and again, without a pause.
func (c *client) keepAlive(ctx context.Context, id clientv3.LeaseID, secs int64) (int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for {
		st, fresh, err := c.keepAliveStream()
		if err != nil {
			return 0, err
		}
		ttl, err := st.ask(ctx, id, max(pulse(secs), time.Second))
		if err == nil || fresh || ctx.Err() != nil {
			return ttl, ended(ctx, clientv3.ContextError(ctx, err))
		}
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
	if st := c.kept; st != nil && st.route == route && st.life.Err() == nil {
		return st, false, nil
	}
	if c.kept != nil {
		c.kept.cancel()
	}
	st = &keepAlives{route: route, heard: time.Now().Add(requestWithin)} // to open it may take longest of all
	st.begin(c.life)
	c.kept = st
	c.background.Go(func() { st.fail(st.run(st.open, st.heardOf)) })
	return st, true, nil
}

func (st *keepAlives) open(ctx context.Context, o ...grpc.CallOption) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	stream, err := etcdserverpb.NewLeaseClient(st.route.ActiveConnection()).LeaseKeepAlive(ctx, o...)
	if err == nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.heard = time.Now()
	}
	return stream, err
}

// ask sends a request and waits for its answer. It ends the stream if nothing is heard for as long as patience.
func (st *keepAlives) ask(ctx context.Context, id clientv3.LeaseID, patience time.Duration) (int64, error) {
	k := &keepAlive{id, time.Now(), make(chan int64, 1)}
	st.mu.Lock()
	if st.broken == nil {
		st.asked = append(st.asked, k)
		st.send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)})
	} else {
		close(k.answer)
	}
	st.mu.Unlock()
	impatient := time.NewTicker(patience)
	defer impatient.Stop()
	for {
		select {
		case ttl, ok := <-k.answer:
			if !ok {
				return 0, st.broken
			}
			return ttl, nil
		case <-impatient.C:
			st.endIfSilent(patience)
		case <-ctx.Done():
			st.endIfSilent(patience)
			return 0, ctx.Err()
		}
	}
}

// endIfSilent ends the stream if the oldest request waits, and nothing is heard, for as long as patience. A
// server that is slow still answers others, and another stream would be more work for it.
func (st *keepAlives) endIfSilent(patience time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.asked) > 0 && min(time.Since(st.heard), time.Since(st.asked[0].at)) >= patience {
		st.cancel()
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
	st.asked[0].answer <- resp.TTL
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
		close(k.answer)
	}
	st.asked = nil
}
