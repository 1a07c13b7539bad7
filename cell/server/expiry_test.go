package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// byHand is a clock that is set by hand.
type byHand struct{ now atomic.Int64 }

func (c *byHand) Now() driver.Instant        { return driver.Instant(c.now.Load()) }
func (c *byHand) advance(past time.Duration) { c.now.Add(int64(past)) }

// asFront is a front of its own on the etcd of a member: another member as far as sessions go. Its time is set by hand, and
// it ends what is over when it is told to.
type asFront struct {
	*front
	*byHand
	t   *testing.T
	ctx context.Context // of its clients
}

func newAsFront(t *testing.T, m *Member, wrap func(store) store) *asFront {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	var s store = newEtcdStore(m.etcd.Server)
	if wrap != nil {
		s = wrap(s)
	}
	f := &asFront{newFront(life, life, s, &m.config, m.front.guard), &byHand{}, t, context.WithValue(t.Context(), callerKey{}, anybody)}
	f.advance(time.Hour)
	f.clock, f.mirror.clock, f.leads = f.byHand, f.byHand, func() bool { return true }
	f.background.Go(func() { f.follow(m.client) })
	t.Cleanup(func() {
		end()
		f.background.Wait()
	})
	if err := f.mirror.reach(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return f
}

// lifetime is the TTL of sessions of which the member itself must not think that they are over during a test.
const lifetime = 10 * time.Minute

// openAs opens a session of somebody.
func (f *asFront) openAs(ctx context.Context) (credential, id string) {
	f.t.Helper()
	s, err := sessions{f.front}.Open(ctx, &cellv1.OpenRequest{Ttl: durationpb.New(lifetime)})
	if err != nil {
		f.t.Fatal(err)
	}
	return s.Session, s.Id
}

// open opens a session, which has a hold and a place behind it.
func (f *asFront) open() (credential, id string) {
	f.t.Helper()
	credential, id = f.openAs(f.ctx)
	for _, request := range []string{"holds", "waits"} {
		if _, err := (locks{f.front}).Acquire(f.ctx, &cellv1.AcquireRequest{
			Session: credential, Name: "job-" + id, Request: request, Queue: true,
		}); err != nil {
			f.t.Fatal(err)
		}
	}
	return credential, id
}

// keep keeps a session alive: its client speaks to this member.
func (f *asFront) keep(credential string) {
	f.t.Helper()
	if _, err := (sessions{f.front}).KeepAlive(f.ctx, &cellv1.KeepAliveRequest{Session: credential, Now: true}); err != nil {
		f.t.Fatal(err)
	}
}

// over returns what this member takes for over, of one session.
func (f *asFront) over(id string) (all []expired) {
	for _, e := range f.expired() {
		if e.id == id {
			all = append(all, e)
		}
	}
	return all
}

// end ends what a member takes for over.
func (f *asFront) end(all []expired) {
	f.t.Helper()
	for _, e := range all {
		if err := f.endExpired(e); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// has returns how many holds and places a session has; -1, -1: it is over.
func (f *asFront) has(id string) (holds, places int) {
	f.t.Helper()
	if err := f.sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	s := f.mirror.sessions[id]
	if s == nil {
		n := f.mirror.nameLocked("job-" + id)
		if n != nil {
			f.t.Errorf("a session is over, and has %d entries", len(n.entries))
		}
		return -1, -1
	}
	return len(s.entries) - s.places, s.places
}

// expect checks what a session has.
func (f *asFront) expect(id string, holds, places int, why string) {
	f.t.Helper()
	if h, p := f.has(id); h != holds || p != places {
		f.t.Errorf("%s: it has %d holds and %d places, not %d and %d", why, h, p, holds, places)
	}
}

// TestExpiry: a session ends when its TTL is over, its places do sooner, whether its home does it or another
// member, which waits for longer; and never by a member that has missed a sign of life, however late it is
// (P1).
func TestExpiry(t *testing.T) {
	m := start(t)
	t.Run("its home ends it", func(t *testing.T) {
		f := newAsFront(t, m, nil)
		credential, id := f.open()
		f.advance(lifetime - time.Second)
		f.end(f.over(id))
		f.expect(id, 1, 0, "its places are over, and it is not")
		f.keep(credential)
		f.advance(lifetime - time.Second)
		f.end(f.over(id))
		f.expect(id, 1, 0, "it has been kept alive")
		f.advance(time.Second)
		f.end(f.over(id))
		f.expect(id, -1, -1, "P7: nobody has kept it")
	})
	t.Run("another member ends it", func(t *testing.T) {
		home, f := newAsFront(t, m, nil), newAsFront(t, m, nil)
		_, id := home.open()
		f.expect(id, 1, 1, "it has just been opened")
		f.advance(lifetime + aliveFor - time.Second)
		f.end(f.over(id))
		f.expect(id, 1, 0, "P1: its home may have heard of its client later than this one heard of its home")
		f.advance(time.Second)
		f.end(f.over(id))
		f.expect(id, -1, -1, "P7: its home is silent")
	})
	for what, after := range map[string]time.Duration{"a home that was stopped is too late": lifetime, "places of a home that was stopped": time.Minute} {
		t.Run(what, func(t *testing.T) {
			home, f := newAsFront(t, m, nil), newAsFront(t, m, nil)
			credential, id := home.open()
			f.expect(id, 1, 1, "it has just been opened")
			home.advance(after)
			late := home.over(id)
			if len(late) != 1 || (late[0].places != nil) != (after < lifetime) {
				t.Fatalf("it is not over for its home: %v", late)
			}
			f.keep(credential)
			home.end(late)
			f.expect(id, 1, 1, "P1: its client is with another member")
		})
	}
	t.Run("a claim that becomes a whole hold meanwhile", func(t *testing.T) {
		var h *hooked
		home, f := newAsFront(t, m, func(s store) store { h = &hooked{store: s}; return h }), newAsFront(t, m, nil)
		credential, id := home.open()
		if _, err := (locks{home.front}).Release(home.ctx, &cellv1.ReleaseRequest{
			Session: credential, Locks: []*cellv1.Release{{Name: "job-" + id, Request: "holds"}},
		}); err != nil {
			t.Fatal(err)
		}
		f.expect(id, 0, 1, "what it waited for is a claim now")
		home.advance(home.placeTTL)
		late := home.over(id)
		h.before(func() {
			f.mirror.mu.Lock()
			claim := f.mirror.nameLocked("job-" + id).entries[0]
			f.mirror.mu.Unlock()
			if err := f.own(f.ctx, []*entry{claim}); err != nil {
				t.Error(err)
			}
		})
		home.end(late)
		f.expect(id, 1, 0, "P1: it lasts as long as its session")
	})
	t.Run("a home that is heard of again", func(t *testing.T) {
		home, f := newAsFront(t, m, nil), newAsFront(t, m, nil)
		credential, id := home.open()
		f.expect(id, 1, 1, "it has just been opened")
		f.advance(lifetime + aliveFor)
		late := f.over(id)
		if len(late) != 1 || late[0].places != nil {
			t.Fatalf("it is not over for the other member: %v", late)
		}
		home.advance(aliveFor)
		home.keep(credential)
		f.end(late)
		f.expect(id, 1, 1, "P1: its home lives")
		f.end(f.over(id))
		f.expect(id, 1, 1, "P1: its home lives, as all know by now")
	})
	t.Run("a home takes no sign of life for what it has begun to end", func(t *testing.T) {
		var lost *lostEnd
		home := newAsFront(t, m, func(s store) store { lost = &lostEnd{store: s}; return lost })
		credential, id := home.open()
		home.advance(lifetime)
		lost.next.Store(true)
		if err := home.endExpired(home.over(id)[0]); err == nil {
			t.Fatal("the transaction was not lost")
		}
		home.keep(credential)
		if resp, err := lost.store.Txn(t.Context(), lost.request.Load()); err != nil || resp.Succeeded {
			t.Errorf("P1: the transaction that was held up ends the session (%v)", err)
		}
		home.expect(id, 1, 1, "P1: it has been kept alive")
	})
	t.Run("processes that have ended", func(t *testing.T) {
		f := newAsFront(t, m, nil)
		ended, home := newAsFront(t, m, nil), newAsFront(t, m, nil)
		credential, _ := ended.open()
		f.keep(credential)
		_, id := home.open()
		f.expect(id, 1, 1, "it has just been opened")
		f.advance(silentFor)
		if err := f.forgetOld(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, one := range []*asFront{ended, home} {
			key := aliveAt + one.aliveness.process
			resp, err := f.store.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte(key)})
			if err != nil || len(resp.Kvs) == 0 != (one == ended) {
				t.Errorf("%d keys of a process (%v), which is a home: %v", len(resp.Kvs), err, one == home)
			}
		}
	})
	t.Run("a member that dies in between", func(t *testing.T) {
		f := newAsFront(t, m, nil)
		_, id := f.open()
		if _, err := f.store.Txn(t.Context(), &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{table.DeleteOp([]byte(sessionsAt + id))}}); err != nil {
			t.Fatal(err)
		}
		_, stays := f.open()
		if err := f.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.advance(within)
		f.end(f.over(id))
		f.expect(id, -1, -1, "P7: nobody else ends what is left")
		f.expect(stays, 1, 1, "P1: it is not over")
	})
	t.Run("a minimum hold, whose member dies in between", func(t *testing.T) {
		f := newAsFront(t, m, nil)
		credential, id := f.open()
		name := "closed-" + id
		if _, err := f.acquire(credential, name, "r", func(m *cellv1.AcquireRequest) { m.MinHold = durationpb.New(time.Hour) }); err != nil {
			t.Fatal(err)
		}
		if _, err := f.store.Txn(t.Context(), &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{table.DeleteOp([]byte(sessionsAt + id))}}); err != nil {
			t.Fatal(err)
		}
		if err := f.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.advance(within)
		f.end(f.over(id))
		open := func() bool {
			if err := errors.Join(f.forgetOld(t.Context()), f.sync(t.Context())); err != nil {
				t.Fatal(err)
			}
			f.mirror.mu.Lock()
			defer f.mirror.mu.Unlock()
			return f.mirror.nameLocked(name) == nil
		}
		if f.advance(time.Hour - within - time.Second); open() {
			t.Error("P5: a name has opened before its minimum was over")
		}
		if f.advance(2 * time.Second); !open() {
			t.Error("P5: a name whose minimum is over has not opened")
		}
	})
}

// lostEnd loses a transaction, which arrives later.
type lostEnd struct {
	store
	next    atomic.Bool
	request atomic.Pointer[etcdserverpb.TxnRequest]
}

func (l *lostEnd) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if l.next.Swap(false) {
		l.request.Store(r)
		return nil, errors.New("no answer")
	}
	return l.store.Txn(ctx, r)
}

// hooked does something before its next transaction.
type hooked struct {
	store
	mu   sync.Mutex
	next func()
}

func (h *hooked) before(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = do
}

func (h *hooked) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	h.mu.Lock()
	do := h.next
	h.next = nil
	h.mu.Unlock()
	if do != nil {
		do()
	}
	return h.store.Txn(ctx, r)
}
