package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease"

	"github.com/holdfastlock/holdfast/driver"
)

// store is what the front asks of its member's etcd.
type store interface {
	Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error)
	Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error)
	// Reached returns the revision that the cell has reached, or a later one.
	Reached(context.Context) (int64, error)
	LeaseGrant(context.Context, *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error)
	LeaseRevoke(context.Context, *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error)
	LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest) (*etcdserverpb.LeaseLeasesResponse, error)
	LeaseTimeToLive(context.Context, *etcdserverpb.LeaseTimeToLiveRequest) (*etcdserverpb.LeaseTimeToLiveResponse, error)
}

// front is the API of one member. What counts is in its etcd.
type front struct {
	guard  *guard
	store  store
	mirror *mirror
	clock  driver.Clock
	log    *slog.Logger
	audit  *slog.Logger

	minTTL     time.Duration   // of sessions
	placeTTL   time.Duration   // of places and claims
	pulse      time.Duration   // how often the client of a place gives a sign of life
	poll       time.Duration   // driver.Caps.Poll
	life       context.Context // until the member stops
	background sync.WaitGroup
	stopping   chan struct{}          // closed when parked calls are to go to another member
	leads      func() bool            // whether this member leads the cell
	written    atomic.Int64           // the last revision that a transaction of this member has seen
	shortage   atomic.Pointer[string] // why nobody gets anything new; nil or "": they do
	tombstones tombstoneLease
	aliveness  aliveness
	rounds     rounds
}

// newFront returns the front of a member until life ends.
//
// A place lasts for a second more than etcd's shortest lease after the last sign of life of its client,
// which comes three times as often as long as the session has places. So a dead client's place is gone,
// with the half second that its member may take to notice it (expireEvery), within two of poll (P7).
func newFront(life context.Context, s store, c *Config, g *guard) *front {
	shortest := wholeSeconds(c.Election * 3 / 2)
	places := time.Duration(shortest+1) * time.Second
	f := &front{
		guard: g, store: s, mirror: newMirror(driver.HostClock), clock: driver.HostClock, log: c.Log, audit: c.Audit,
		minTTL: time.Duration(shortest) * time.Second, placeTTL: places, pulse: places / 3, poll: (places + time.Second) / 2,
		life: life, stopping: make(chan struct{}), aliveness: aliveness{process: rand.Text()},
		rounds: rounds{wake: make(chan struct{}, 1)},
	}
	f.mirror.orphaned = f.orphaned
	f.background.Go(f.ask)
	f.mirror.mayRead = func(s *session, path string) bool {
		p := g.named(s.record.Load().Principal)
		return p != nil && f.mirror.mayLocked(p, path, toRead)
	}
	return f
}

// note notes what somebody has done to others: for those who ask later who it was.
func (f *front) note(ctx context.Context, what string, args ...any) {
	f.audit.Info(what, append(args, "by", principalOf(ctx))...)
}

// each does something again and again, until the member stops.
func (f *front) each(interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case <-f.life.Done():
			return
		}
	}
}

// within bounds a request to etcd.
const within = 5 * time.Second

// put does a transaction. The mirror may show it a little later.
func (f *front) put(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	do := f.store.Txn
	if needs, fenced := fenceOf(ctx); fenced {
		do = func(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
			return f.fenced(ctx, needs, req)
		}
	}
	resp, err := do(ctx, req)
	if err != nil {
		return nil, err
	}
	for rev := resp.Header.Revision; ; {
		if was := f.written.Load(); was >= rev || f.written.CompareAndSwap(was, rev) {
			return resp, nil
		}
	}
}

// txn does a transaction, and waits until the mirror shows it.
func (f *front) txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := f.put(ctx, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return resp, f.mirror.reach(ctx, resp.Header.Revision)
}

// session returns the session of a credential, if the caller may use it.
func (f *front) session(ctx context.Context, text string) (*session, error) {
	id, secret, err := credential(text)
	if err != nil {
		return nil, err
	}
	for synced := false; ; synced = true {
		f.mirror.mu.Lock()
		s := f.mirror.sessions[id]
		if s != nil {
			admitted, over := s.record.Load().admits(principalOf(ctx), secret), s.over
			f.mirror.mu.Unlock()
			switch {
			case !admitted:
				return nil, errNotYours
			case !over:
				return s, nil
			}
			return nil, errSessionOver
		}
		f.mirror.mu.Unlock()
		if synced {
			return nil, errSessionOver
		}
		if err := f.sync(ctx); err != nil { // another member may have opened it
			return nil, err
		}
	}
}

// grantLease makes a lease of a session. One that is there already is right too.
func (f *front) grantLease(ctx context.Context, id int64) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := f.store.LeaseGrant(bounded, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: forever})
	if errors.Is(err, lease.ErrLeaseExists) {
		return nil
	}
	return ofStore(ctx, err)
}

// tombstoneSeconds is how long the cell remembers at least that a request is over, and twice that at
// most.
const tombstoneSeconds = 120

// tombstoneLease is the lease of the tombstones that this member puts up.
type tombstoneLease struct {
	mu    sync.Mutex
	id    clientv3.LeaseID
	since driver.Instant
}

// lease returns a lease that lasts for tombstoneSeconds at least.
func (t *tombstoneLease) lease(ctx context.Context, f *front) (clientv3.LeaseID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := f.clock.Now()
	if t.id != 0 && now < t.since.Add(tombstoneSeconds*time.Second) {
		return t.id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := f.store.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: 2 * tombstoneSeconds})
	if err != nil {
		return 0, err
	}
	t.id, t.since = clientv3.LeaseID(resp.ID), now
	return t.id, nil
}

// forget makes the next call of lease make another one: that one has ended.
func (t *tombstoneLease) forget(id clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id == id {
		t.id = 0
	}
}
