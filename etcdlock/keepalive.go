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

// keepAlives is one stream on which a client keeps all its leases alive, one after the other. Each
// stream that is opened costs a server with users a check of the password, and an entry in its log:
// too much for each sign of life.
type keepAlives struct {
	mu     sync.Mutex // held while a request is under way
	route  *route
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil: none
	cancel context.CancelFunc
}

// keepAlive asks once, and returns the seconds that the lease lasts from now: 0 if it has ended.
// The library's own function asks again and again, without a pause. Where the caller does not
// wait so long, the answer is still received: it must not be taken for that of a later request,
// whose lease would be trusted for longer than it lasts (P1).
func (c *client) keepAlive(ctx context.Context, id clientv3.LeaseID, secs int64) (int64, error) {
	if c.life.Err() != nil {
		return 0, driver.ErrClosed
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	type answer struct {
		ttl int64
		err error
	}
	done := make(chan answer, 1)
	go func() {
		c.kept.mu.Lock()
		defer c.kept.mu.Unlock()
		if ctx.Err() == nil {
			ttl, err := c.kept.ask(c, id, max(pulse(secs), time.Second))
			done <- answer{ttl, err}
		}
	}()
	select {
	case a := <-done:
		return a.ttl, ended(ctx, clientv3.ContextError(ctx, a.err))
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// ask sends a request and waits for its answer. A stream that breaks, or on which no answer comes for
// as long as patience, is replaced by another, as a rule to another member.
func (k *keepAlives) ask(c *client, id clientv3.LeaseID, patience time.Duration) (int64, error) {
	for fresh := false; ; {
		if route := c.spareRoute(); k.stream == nil || k.route != route {
			if fresh = true; k.stream != nil {
				k.cancel()
			}
			if err := k.open(c.life, route); err != nil {
				return 0, err
			}
		}
		late := time.AfterFunc(patience, k.cancel)
		k.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}) // if it fails Recv says why
		resp, err := k.stream.Recv()
		late.Stop()
		if err == nil && resp.ID == int64(id) {
			return resp.TTL, nil
		}
		k.cancel()
		k.stream = nil
		switch {
		case err == nil:
			return 0, errors.New("etcd has answered what was not asked")
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		if fresh {
			return 0, err
		}
	}
}

// open opens a stream.
func (k *keepAlives) open(ctx context.Context, w *route) (err error) {
	ctx, k.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(requestWithin, k.cancel)
	defer late.Stop()
	k.route = w
	if k.stream, err = etcdserverpb.NewLeaseClient(w.etcd.ActiveConnection()).LeaseKeepAlive(ctx); err != nil {
		k.cancel()
		k.stream = nil
	}
	return err
}
