package fallback_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// TestBreaker: the breaker opens when Options.Silence is over, and not sooner. A request that it cuts off fails with an
// error that is not the caller's.
func TestBreaker(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(fallback.Options{Silence: 3 * time.Second})
		held := c.acquire("held")
		c.wire.HoldReplies()
		began := time.Now()
		r := driver.Request{Name: "x", Owner: "a", TTL: ttl}
		_, err := c.d.Try(w.ctx, r)
		if took := time.Since(began); !errors.Is(err, fallback.ErrSilent) || took != 3*time.Second {
			t.Errorf("after %v the error is %v", took, err)
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is that of a context of the caller's: %v", err)
		}
		c.wire.ReleaseReplies()
		c.becomes(false, 10*time.Second)
		c.d.Release(w.ctx, []driver.Grant{{Request: r}})
		release(t, c.acquire("x"), held)
		synctest.Wait() // for OnChange
		if want := []bool{true, false}; !slices.Equal(c.changes, want) {
			t.Errorf("the breaker was open: %v, not %v", c.changes, want)
		}
		if s := c.d.Status(); s.Silent != 0 || s.Err != nil {
			t.Errorf("the status is %+v", s)
		}
	})
}

// stub is a store of which a test changes something.
type stub struct {
	wrap.Forward
	caps           driver.Caps
	tries, hanging atomic.Pointer[error] // Try fails so; Try and Release hang
	handle         any                   // the store needs it back, and a token
	t              *testing.T
	seen           int
}

func changed(d driver.Driver, change func(*driver.Caps)) *stub {
	s := &stub{Forward: wrap.Forward{Driver: d}, caps: d.Caps()}
	if change != nil {
		change(&s.caps)
	}
	return s
}

func (s *stub) Caps() driver.Caps { return s.caps }

func (s *stub) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if s.hanging.Load() != nil {
		<-ctx.Done()
		return driver.Grant{Request: r}, driver.Uncertain(ctx.Err())
	}
	if err := s.tries.Load(); err != nil {
		return driver.Grant{}, *err
	}
	g, err := s.Forward.Try(ctx, r)
	g.Handle = s.handle
	return g, err
}

func (s *stub) check(grants []driver.Grant) {
	for _, g := range grants {
		if s.seen++; s.t != nil && (g.Token == 0 || g.Handle != s.handle || g.Degraded) {
			s.t.Errorf("the store got %+v", g)
		}
	}
}

func (s *stub) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	s.check(grants)
	return s.Forward.Renew(ctx, grants)
}

func (s *stub) Release(ctx context.Context, grants []driver.Grant) []error {
	if s.hanging.Load() != nil {
		<-ctx.Done()
		return slices.Repeat([]error{ctx.Err()}, len(grants))
	}
	s.check(grants)
	return s.Forward.Release(ctx, grants)
}

func (s *stub) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if s.hanging.Load() != nil {
		<-ctx.Done()
		return driver.Info{}, ctx.Err()
	}
	return s.Forward.Inspect(ctx, name)
}

// TestErrorsAreNotSilence: a store that refuses locks with errors, such as a Redis whose memory is
// full, and answers a probe, is in use: its errors are shown.
func TestErrorsAreNotSilence(t *testing.T) {
	inWorld(t, func(w *world) {
		first, full := changed(w.first.Client(), nil), errors.New("OOM command not allowed")
		first.tries.Store(&full)
		d := w.over(first, w.second.Client(), fallback.Options{})
		c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, full) {
				t.Fatalf("the error is %v", err)
			}
			time.Sleep(time.Second)
		}
		if d.Status().Open {
			t.Error("the breaker is open")
		}
	})
}

// TestSecondStore follows a name through an outage: held in the first store, closed until its
// holder's lease is over, held in the second, and taken from the first again only when that hold
// has ended, also by a client that has missed the outage (P1).
func TestSecondStore(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(fallback.Options{}), w.client(fallback.Options{})
		before := a.acquire("x")
		if before.Degraded() || before.Token() == 0 {
			t.Errorf("a lease of the first store: degraded %t, token %d", before.Degraded(), before.Token())
		}
		cut := time.Now()
		a.silence()
		b.silence()
		_, err := b.lock("x").TryAcquire(w.ctx)
		held, ok := errors.AsType[*holdfast.HeldError](err)
		if !ok || held.ExpiresIn <= 0 || held.ExpiresIn > ttl {
			t.Errorf("while the holder may still trust its lease the error is %v (%+v)", err, held)
		}
		lease := b.acquire("x")
		if before.Err() == nil {
			t.Fatal("P1: the lease of the first store is trusted beside that of the second")
		}
		if took := time.Since(cut); took < ttl || took > 2*ttl {
			t.Errorf("the second store was used after %v", took)
		}
		if !lease.Degraded() || lease.Token() != 0 || b.d.Status().Degraded != 1 {
			t.Errorf("a lease of the second store: degraded %t, token %d", lease.Degraded(), lease.Token())
		}
		synctest.Wait() // hooks are called on another goroutine
		if last := b.events[len(b.events)-1]; last.Name != "x" || !last.Degraded {
			t.Errorf("the hook was told %+v", last)
		}
		for _, c := range []*client{a, b} {
			c.wire.Heal()
			c.becomes(false, 10*time.Second)
		}
		missed := w.client(fallback.Options{})
		for who, c := range map[string]*client{"the holder's client": b, "another": a, "a new one": missed} {
			if _, err := c.lock("x").TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("P1: %s: the name is held in the second store, and the error is %v", who, err)
			}
			other := c.acquire("other of " + who)
			if other.Degraded() {
				t.Errorf("%s: the first store answers, and a free name is taken from the second", who)
			}
			release(t, other)
		}
		time.Sleep(5 * ttl)
		if lease.Err() != nil {
			t.Fatalf("the lease of the second store is not renewed: %v", lease.Err())
		}
		release(t, lease)
		for _, c := range []*client{a, b, missed} {
			next := c.acquire("x")
			if next.Degraded() || next.Token() <= before.Token() {
				t.Errorf("after the outage: degraded %t, token %d after %d", next.Degraded(), next.Token(), before.Token())
			}
			release(t, next)
		}
		if err := before.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the release of the lease that was cut off: %v", err)
		}
	})
}

// TestClientsApart: what the guarantees say of a partition. A client that is cut off holds a name in
// the second store beside one that reaches the first all the time (P1 is broken).
func TestClientsApart(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(fallback.Options{}), w.client(fallback.Options{})
		busy, stop := context.WithCancel(w.ctx)
		defer stop()
		go func() { // so b knows that the first store answers, and does not look at the second
			for busy.Err() == nil {
				release(t, b.acquire("busy"))
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(10 * time.Second)
		a.silence()
		one, other := a.acquire("x"), b.acquire("x")
		if one.Err() != nil || other.Err() != nil || !one.Degraded() || other.Degraded() {
			t.Errorf("one: %v, degraded %t; other: %v, degraded %t", one.Err(), one.Degraded(), other.Err(), other.Degraded())
		}
		if v := a.Caps().Guarantees.Faults[driver.Partition]; v.Exclusion != driver.Breaks || v.Note == "" {
			t.Errorf("the guarantees say %+v", v)
		}
		release(t, one, other)
		stop()
		time.Sleep(2 * time.Second)
	})
}

// TestWaiters: a waiter at the first store when that goes silent gets its turn in the second, and leaves nothing in the
// first (P6, P7).
func TestWaiters(t *testing.T) {
	inWorld(t, func(w *world) {
		stranger := w.first.Client()
		defer stranger.Close()
		grant, err := stranger.Try(w.ctx, driver.Request{Name: "x", Owner: "stranger", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c := w.client(fallback.Options{})
		got := make(chan *holdfast.Lease, 1)
		go func() { got <- c.acquire("x") }()
		time.Sleep(10 * time.Second)
		c.silence()
		time.Sleep(ttl)
		c.wire.Heal()
		c.becomes(false, 10*time.Second)
		time.Sleep(ttl)
		w.holders(w.first, "x", 1)
		lease := <-got
		if !lease.Degraded() {
			t.Error("the lease is not degraded")
		}
		stranger.Release(w.ctx, []driver.Grant{grant})
		release(t, lease)
		w.holders(w.first, "x", 0)
	})
}

// TestLateRequest: a request that was cut off arrives when the first store is back. It leaves no hold there
// (P6), and its withdrawal ends no other (P1).
func TestLateRequest(t *testing.T) {
	for _, after := range []time.Duration{-1, 0} {
		inWorld(t, func(w *world) {
			c := w.client(fallback.Options{After: after})
			c.wire.HoldRequests()
			got := make(chan *holdfast.Lease)
			go func() { got <- c.acquire("x") }()
			c.becomes(true, 10*time.Second)
			time.Sleep(time.Second)
			c.wire.ReleaseRequests()
			lease := <-got
			if lease.Degraded() != (after < 0) {
				t.Errorf("the lease is degraded: %t", lease.Degraded())
			}
			time.Sleep(5 * ttl)
			if err := lease.Err(); err != nil {
				t.Errorf("the lease was lost: %v", err)
			}
			release(t, lease)
			w.holders(w.first, "x", 0)
		})
	}
}

// TestDegradedLease: a degraded lease is renewed and released. The second store gets its grants back as it gave them,
// with token and handle, in batches that do not wait for the first.
func TestDegradedLease(t *testing.T) {
	inWorld(t, func(w *world) {
		second := changed(w.second.Client(), nil)
		second.handle, second.t = "mine", t
		c := w.clientOver(second, fallback.Options{After: -1})
		shard := c.d.Shard(driver.Request{Name: "x"})
		c.silence()
		lease := c.acquire("x")
		info, err := c.Inspect(w.ctx, "x")
		if err != nil || c.d.Shard(driver.Request{Name: "x", Owner: info.Holders[0].Owner}) == shard {
			t.Errorf("both stores are one shard: %v", err)
		}
		if err := lease.Renew(w.ctx); err != nil || lease.Token() != 0 || !lease.Degraded() {
			t.Errorf("%v, token %d, degraded %t", err, lease.Token(), lease.Degraded())
		}
		release(t, lease)
		if second.seen < 2 {
			t.Errorf("the second store was asked %d times", second.seen)
		}
	})
}

// TestOperators: Inspect, List, Watch and Break over both stores.
func TestOperators(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(fallback.Options{})
		old := c.acquire("old")
		shows := func(want map[string]holdfast.Token) {
			t.Helper()
			all := map[string]holdfast.Token{}
			for info, err := range c.List(w.ctx, "") {
				if err != nil {
					t.Fatal(err)
				}
				if one, err := c.Inspect(w.ctx, info.Name); !info.Idle() && (err != nil || one.Holders[0].Token != info.Holders[0].Token) {
					t.Errorf("listed is %+v, and inspected %+v, %v", info, one, err)
				}
				if !info.Idle() {
					all[info.Name] = info.Holders[0].Token
				}
			}
			if !maps.Equal(all, want) {
				t.Errorf("shown are %v, not %v", all, want)
			}
		}
		shows(map[string]holdfast.Token{"old": old.Token()})
		c.silence()
		if err := c.Break(w.ctx, "old", 1); !errors.Is(err, fallback.ErrSilent) {
			t.Errorf("Break while the store is silent: %v", err)
		}
		watch, cancel := context.WithCancel(w.ctx)
		var seen []int // by a watch that begins while the breaker is open
		var watching sync.WaitGroup
		watching.Go(func() {
			for info, err := range c.Watch(watch, "new") {
				if err != nil {
					t.Errorf("Watch while the breaker is open: %v", err)
				}
				seen = append(seen, len(info.Holders))
			}
		})
		lease := c.acquire("new")
		shows(map[string]holdfast.Token{"new": 0})
		c.wire.Heal()
		c.becomes(false, 10*time.Second)
		fresh := c.acquire("fresh")
		shows(map[string]holdfast.Token{"fresh": fresh.Token(), "new": 0})
		if err := c.Break(w.ctx, "fresh", fresh.Token()); err != nil {
			t.Error(err)
		}
		<-fresh.Done()
		release(t, lease)
		time.Sleep(time.Second)
		cancel()
		watching.Wait()
		if !slices.Contains(seen, 1) || seen[len(seen)-1] != 0 {
			t.Errorf("the watch showed %v holders", seen)
		}
		_, _ = old.Release(), fresh.Release()
	})
}

// TestSilentSecond: a second store that does not answer does not keep the first from being used.
func TestSilentSecond(t *testing.T) {
	inWorld(t, func(w *world) {
		second := changed(w.second.Client(), nil)
		second.hanging.Store(new(error))
		d := w.over(w.first.Client(), second, fallback.Options{})
		g, err := d.Try(w.ctx, driver.Request{Name: "x", Owner: "a", TTL: ttl})
		if err != nil || g.Degraded {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// TestRenewalsAreSignsOfLife: while the first store answers a renewal now and then, its holds may
// go on, so the second store is not used yet.
func TestRenewalsAreSignsOfLife(t *testing.T) {
	inWorld(t, func(w *world) {
		first := changed(w.first.Client(), nil)
		d := w.over(first, w.second.Client(), fallback.Options{})
		g, err := d.Try(w.ctx, driver.Request{Name: "x", Owner: "a", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		first.hanging.Store(new(error))
		r := driver.Request{Name: "x", Owner: "b", TTL: ttl}
		if _, err := d.Try(w.ctx, r); !errors.Is(err, fallback.ErrSilent) {
			t.Fatalf("the error is %v", err)
		}
		for range 20 {
			_, err := d.Try(w.ctx, r)
			if held, ok := errors.AsType[*driver.HeldError](err); !ok || held.ExpiresIn < ttl/2 {
				t.Fatalf("P1: the name is held in the first store, and the answer is %v", err)
			}
			if out := d.Renew(w.ctx, []driver.Grant{g}); out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			time.Sleep(ttl / 3)
		}
	})
}

// TestOptions: what cannot work is refused (P10). A driver over two stores can do what both can, without fencing.
func TestOptions(t *testing.T) {
	s := memlock.NewStore(nil)
	a, b := s.Client(), memlock.NewStore(nil).Client()
	for name, c := range map[string]struct {
		first, second driver.Driver
		o             fallback.Options
	}{
		"no second store":     {a, nil, fallback.Options{}},
		"the same store":      {a, s.Client(), fallback.Options{}},
		"silence":             {a, b, fallback.Options{Silence: time.Millisecond}},
		"a second that hides": {a, struct{ driver.Driver }{b}, fallback.Options{}},
	} {
		if _, err := fallback.New(c.first, c.second, &c.o); err == nil || !strings.HasPrefix(err.Error(), "fallback: ") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	two, err := fallback.New(changed(a, func(c *driver.Caps) { c.Shared = false }), b, nil)
	if err != nil || two.Caps().Fencing || two.Caps().Shared || !two.Caps().Slots {
		t.Errorf("a driver over two stores: %+v, %v", two.Caps(), err)
	}
	two.Close()
}
