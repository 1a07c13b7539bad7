package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

// within bounds a request to etcd.
const within = 5 * time.Second

// failover is a member's etcd, which answers within a bounded time, and for whom a change of the leader does not mean a
// long wait. What a member has sent to a leader that dies, stands still or gives the leadership away may be lost, and
// etcd waits for an answer until the request's time is over.
type failover struct {
	store
	changed func() <-chan struct{} // closed when there is a leader, and it is another one
	reign   atomic.Pointer[context.Context]
}

// errLeaderGone says that there is another leader than the one to which a request was sent.
var errLeaderGone = errors.New("another member leads now, and the one before may not have done what it was asked")

// settleWithin is how long requests to the leader before have to be answered after all: the next one has
// what was written by a majority, and finishes it first.
const settleWithin = 500 * time.Millisecond

func newFailover(s store, changed func() <-chan struct{}) *failover {
	always := context.Background()
	f := &failover{store: s, changed: changed}
	f.reign.Store(&always)
	return f
}

// watch gives requests to a leader up when there has been another one for a while, until life ends.
func (f *failover) watch(life context.Context) {
	for change := f.changed(); life.Err() == nil; {
		reign, end := context.WithCancel(context.Background())
		f.reign.Store(&reign)
		select {
		case <-change:
			change = f.changed() // before the next reign begins, so that no request of it misses one
		case <-life.Done():
		}
		time.AfterFunc(settleWithin, end)
	}
}

// once makes a request that may have been done when it fails.
func once[Req, Resp any](ctx context.Context, f *failover, do func(context.Context, Req) (Resp, error), r Req) (Resp, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	defer context.AfterFunc(*f.reign.Load(), func() { cancel(errLeaderGone) })()
	resp, err := do(ctx, r)
	if err != nil && context.Cause(ctx) == errLeaderGone {
		err = errLeaderGone
	}
	return resp, err
}

// again makes a request that changes nothing, or the same as before, until it is not the leader's end that it
// fails by.
func again[Req, Resp any](ctx context.Context, f *failover, do func(context.Context, Req) (Resp, error), r Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		resp, err := once(ctx, f, do, r)
		if !errors.Is(err, errLeaderGone) && !errors.Is(err, etcderrors.ErrLeaderChanged) || ctx.Err() != nil {
			return resp, err
		}
	}
}

// Txn implements store.
func (f *failover) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return once(ctx, f, f.store.Txn, r)
}

// LeaseGrant implements store.
func (f *failover) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	return once(ctx, f, f.store.LeaseGrant, r)
}

// LeaseRevoke implements store.
func (f *failover) LeaseRevoke(ctx context.Context, r *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	return once(ctx, f, f.store.LeaseRevoke, r)
}

// Range implements store.
func (f *failover) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return again(ctx, f, f.store.Range, r)
}

// Reached implements store.
func (f *failover) Reached(ctx context.Context) (int64, error) {
	return again(ctx, f, func(ctx context.Context, _ struct{}) (int64, error) { return f.store.Reached(ctx) }, struct{}{})
}
