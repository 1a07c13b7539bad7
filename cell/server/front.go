package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// store is what the front asks of its member's etcd.
type store interface {
	Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error)
	Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error)
	// Reached returns the revision that the cell has reached, or a later one.
	Reached(context.Context) (int64, error)
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
	stopping   context.Context // until parked calls are to go to another member
	leads      func() bool     // whether this member leads the cell
	shortage   func() string   // why nobody gets anything new; "": they do
	written    atomic.Int64    // the last revision that a transaction of this member has seen
	aliveness  aliveness
}

// newFront returns the front of a member until life ends.
//
// A place lasts for a second more than etcd's shortest lease after the last sign of life of its client,
// which comes three times as often as long as the session has places. So a dead client's place is gone,
// with the half second that its member may take to notice it (expireEvery), within two of poll (P7).
func newFront(life, stopping context.Context, s store, c *Config, g *guard) *front {
	shortest := (c.Election*3/2 + time.Second - 1).Truncate(time.Second)
	places := shortest + time.Second
	return &front{
		guard: g, store: s, mirror: newMirror(driver.HostClock, g), clock: driver.HostClock, log: c.Log, audit: c.Audit,
		minTTL: shortest, placeTTL: places, pulse: places / 3, poll: (places + time.Second) / 2,
		life: life, stopping: stopping, shortage: func() string { return "" }, aliveness: aliveness{process: rand.Text()},
	}
}

// note notes what somebody has done to others: for those who ask later who it was.
func (f *front) note(ctx context.Context, what string, args ...any) {
	f.audit.Info(what, append(args, "by", principalOf(ctx))...)
}

// run does what goes on by itself until the member stops.
func (f *front) run(watcher clientv3.Watcher) {
	f.background.Go(func() { f.follow(watcher) })
	f.background.Go(func() { f.each(expireEvery, f.expire) })
}

// each does something now, and again and again until the member stops.
func (f *front) each(interval time.Duration, do func()) {
	for f.life.Err() == nil {
		do()
		pause.Sleep(f.life, interval)
	}
}

// compares are conditions of a transaction, and when returns one that does something if they hold.
type compares = []*etcdserverpb.Compare

func when(same compares, ops ...*etcdserverpb.RequestOp) *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{Compare: same, Success: ops}
}

// put does a transaction. The mirror may show it a little later.
func (f *front) put(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := f.store.Txn(ctx, req)
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
	return resp, f.mirror.reach(ctx, resp.Header.Revision)
}

// sync waits until the mirror shows all that had happened in the cell when it was called. etcd answers all who ask at the
// same time by one question to the other members.
func (f *front) sync(ctx context.Context) error {
	rev, err := f.store.Reached(ctx)
	if err == nil {
		err = f.mirror.reach(ctx, rev)
	}
	return ofStore(ctx, err)
}

// session returns the session of a credential, if the caller may use it.
func (f *front) session(ctx context.Context, text string) (*session, error) {
	id, secret, _ := strings.Cut(text, ".")
	if !isSessionID(id) || secret == "" || len(secret) > 64 {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "session: what Open has returned is wanted")
	}
	s, err := f.known(ctx, id)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(hashed(secret)), []byte(s.record.Secret)) != 1 || s.record.Principal != principalOf(ctx) {
		return nil, errNotYours
	}
	return s, nil
}

// known returns the session of an id.
func (f *front) known(ctx context.Context, id string) (*session, error) {
	for synced := false; ; synced = true {
		f.mirror.mu.Lock()
		s := f.mirror.sessions[id]
		over := s != nil && s.over
		f.mirror.mu.Unlock()
		switch {
		case over || s == nil && synced:
			return nil, errSessionOver
		case s != nil:
			return s, nil
		}
		if err := f.sync(ctx); err != nil { // another member may have opened it
			return nil, err
		}
	}
}
