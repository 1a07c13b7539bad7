package fallback_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/memlock"
)

// TestRefusesAtOnce: without a second store a lock is refused at once while the first is silent,
// and can be had again when it answers.
func TestRefusesAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(false, fallback.Options{})
		held := c.acquire("held")
		c.silence()
		began := time.Now()
		_, err := c.lock("x").Acquire(w.ctx)
		if !errors.Is(err, fallback.ErrSilent) || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the error is %v, not that the store is silent", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the refusal took %v", took)
		}
		if silent, ok := errors.AsType[*fallback.SilentError](err); !ok || silent.For < 5*time.Second {
			t.Errorf("the error does not say for how long the store has been silent: %+v", silent)
		}
		c.wire.Heal()
		c.becomes(fallback.StateClosed, 10*time.Second)
		release(t, c.acquire("x"), held)
		synctest.Wait() // for OnChange
		if want := []fallback.State{fallback.StateOpen, fallback.StateHalfOpen, fallback.StateClosed}; !slices.Equal(c.changes, want) {
			t.Errorf("the breaker was %v, not %v", c.changes, want)
		}
		if s := c.d.Status(); s.Opened != 1 || s.Silent != 0 || s.Err != nil {
			t.Errorf("the status is %+v", s)
		}
	})
}

// TestOpensAfterSilence: the breaker opens when Options.Silence is over, whether requests hang or
// fail at once, and not sooner.
func TestOpensAfterSilence(t *testing.T) {
	for name, cut := range map[string]func(*client){
		"hang":         func(c *client) { c.wire.Partition() },
		"held back":    func(c *client) { c.wire.HoldRequests() },
		"replies late": func(c *client) { c.wire.HoldReplies() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client(false, fallback.Options{Silence: 3 * time.Second})
				release(t, c.acquire("x"))
				cut(c)
				began := time.Now()
				_, err := c.lock("x").Acquire(w.ctx)
				if took := time.Since(began); !errors.Is(err, fallback.ErrSilent) || took != 3*time.Second {
					t.Errorf("after %v the error is %v", took, err)
				}
				if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error is that of a context of the caller's: %v", err)
				}
				c.wire.Heal()
				c.wire.ReleaseReplies()
				c.wire.ReleaseRequests()
				c.becomes(fallback.StateClosed, 10*time.Second)
				release(t, c.acquire("x")) // nothing is left of the request that was cut off (P6)
			})
		})
	}
}

// TestErrorsAreNotSilence: a store that refuses locks with errors, such as a Redis whose memory is
// full, and answers a probe, is in use: its errors are shown.
func TestErrorsAreNotSilence(t *testing.T) {
	inWorld(t, func(w *world) {
		full := errors.New("OOM command not allowed")
		d, err := fallback.New(&refusing{driver.Forward{Driver: w.first.Client()}, full}, w.second.Client(),
			&fallback.Options{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 100 {
			if _, err := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, full) {
				t.Fatalf("the error is %v", err)
			}
			time.Sleep(time.Second)
		}
		if s := d.Status(); s.State != fallback.StateClosed || s.Opened != 0 {
			t.Errorf("the breaker is %v", s.State)
		}
	})
}

type refusing struct {
	driver.Forward
	err error
}

func (r *refusing) Try(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.err
}

// TestSecondStore follows a name through an outage: held in the first store, closed until its
// holder's lease is over, held in the second, and taken from the first again only when that hold
// has ended, also by a client that has missed the outage (P1).
func TestSecondStore(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(true, fallback.Options{}), w.client(true, fallback.Options{})
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
		if !lease.Degraded() || lease.Token() != 0 {
			t.Errorf("a lease of the second store: degraded %t, token %d", lease.Degraded(), lease.Token())
		}
		synctest.Wait() // hooks are called on another goroutine
		if last := b.events[len(b.events)-1]; last.Name != "x" || !last.Degraded {
			t.Errorf("the hook was told %+v", last)
		}
		a.wire.Heal()
		b.wire.Heal()
		b.becomes(fallback.StateHalfOpen, 10*time.Second)

		missed := w.client(true, fallback.Options{}) // it begins with a closed breaker
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
		if lease.Err() != nil || b.d.Status().State != fallback.StateHalfOpen {
			t.Fatalf("the lease of the second store is not renewed (%v), or the breaker is %v",
				lease.Err(), b.d.Status().State)
		}
		release(t, lease)
		for _, c := range []*client{a, b, missed} {
			next := c.acquire("x")
			if next.Degraded() || next.Token() <= before.Token() {
				t.Errorf("after the outage: degraded %t, token %d after %d", next.Degraded(), next.Token(), before.Token())
			}
			release(t, next)
			c.becomes(fallback.StateClosed, 10*time.Second)
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
		a, b := w.client(true, fallback.Options{}), w.client(true, fallback.Options{})
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

// TestLeasesOfTheFirst: a lease of the first store that is still trusted when that answers again
// goes on there, and is released there.
func TestLeasesOfTheFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		lease := c.acquire("x")
		c.silence()
		time.Sleep(ttl / 2)
		c.wire.Heal()
		time.Sleep(3 * ttl)
		if err := lease.Err(); err != nil || lease.Degraded() {
			t.Fatalf("the lease: %v, degraded %t", err, lease.Degraded())
		}
		w.holders(w.first, "x", 1)
		release(t, lease)
		w.holders(w.first, "x", 0)
	})
}

// holders checks how many hold a name in a store.
func (w *world) holders(s *memlock.Store, name string, want int) {
	w.Helper()
	d := s.Client()
	defer d.Close()
	info, err := d.(driver.Inspector).Inspect(w.ctx, name)
	if err != nil || len(info.Holders) != want || want == 0 && !info.Idle() {
		w.Errorf("the store has %+v (%v), not %d holders", info, err, want)
	}
}

// TestWaiters: who waits at the first store when it goes silent gets its turn in the second, and
// leaves nothing in the first (P6, P7).
func TestWaiters(t *testing.T) {
	inWorld(t, func(w *world) {
		stranger := w.first.Client()
		defer stranger.Close()
		grant, err := stranger.Try(w.ctx, driver.Request{Name: "x", Owner: "stranger", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c := w.client(true, fallback.Options{})
		got := make(chan *holdfast.Lease)
		go func() { got <- c.acquire("x") }()
		time.Sleep(10 * time.Second)
		c.silence()
		lease := <-got
		if !lease.Degraded() {
			t.Error("the lease is from a store that is held by a stranger")
		}
		if s := c.d.Status(); s.Owed != 2 { // this one, and that of silence
			t.Errorf("the first store is to forget %d requests, not 2", s.Owed)
		}
		c.wire.Heal()
		c.becomes(fallback.StateHalfOpen, 10*time.Second)
		info, err := stranger.(driver.Inspector).Inspect(w.ctx, "x")
		if err != nil || len(info.Waiters) != 0 {
			t.Errorf("P6: the first store still has %+v (%v)", info, err)
		}
		if s := c.d.Status(); s.Owed != 0 {
			t.Errorf("the first store is to forget %d requests still", s.Owed)
		}
		stranger.Release(w.ctx, []driver.Grant{grant})
		release(t, lease)
		next := c.acquire("x")
		if next.Degraded() {
			t.Error("the next lease is degraded")
		}
		release(t, next)
	})
}

// TestWaitersWithoutSecond: without a second store a wait that has begun goes on, and ends when the
// store answers again and the name is free.
func TestWaitersWithoutSecond(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(false, fallback.Options{}), w.client(false, fallback.Options{})
		first := a.acquire("x")
		got := make(chan *holdfast.Lease)
		go func() { got <- b.acquire("x") }()
		time.Sleep(10 * time.Second)
		b.silence()
		time.Sleep(ttl)
		b.wire.Heal()
		time.Sleep(ttl)
		select {
		case <-got:
			t.Fatal("P1: the name is held")
		default:
		}
		release(t, first)
		release(t, <-got)
	})
}

// TestReleaseInFlight: suppose A's release to the first store hangs when the breaker opens, and B
// takes the name from the second. Then the late release frees A's hold only (P4).
func TestReleaseInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		lease := c.acquire("x")
		c.wire.HoldRequests()
		released := make(chan error)
		go func() { released <- lease.Release() }()
		next := c.acquire("x") // the release opens the breaker
		if !next.Degraded() {
			t.Error("the next lease is not degraded")
		}
		if err := <-released; !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("a release that got no answer returns %v", err)
		}
		c.wire.ReleaseRequests()
		c.becomes(fallback.StateHalfOpen, 10*time.Second)
		time.Sleep(ttl)
		w.holders(w.first, "x", 0)
		w.holders(w.second, "x", 1)
		if next.Err() != nil {
			t.Errorf("P4: the late release ended the next lease: %v", next.Err())
		}
		release(t, next)
		w.holders(w.second, "x", 0)
	})
}

// TestLateRequest: a request that was cut off arrives when the first store is back. It must not
// leave a hold there (P6).
func TestLateRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{After: -1})
		c.wire.HoldRequests()
		lease := c.acquire("x")
		if !lease.Degraded() {
			t.Error("the lease is not degraded")
		}
		release(t, lease)
		c.wire.ReleaseRequests()
		c.becomes(fallback.StateClosed, 10*time.Second)
		time.Sleep(time.Second)
		w.holders(w.first, "x", 0)
	})
}

// TestLongSilence: a request that was given up is withdrawn when the first store is back, however long
// that took (P6). Package holdfast alone gives up after the TTL.
func TestLongSilence(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		c.wire.HoldRequests()
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err := c.lock("x").Acquire(ctx); err == nil {
			t.Fatal("a lock without an answer")
		}
		c.becomes(fallback.StateOpen, 10*time.Second)
		time.Sleep(5 * ttl)
		c.wire.ReleaseRequests() // the request arrives only now
		c.becomes(fallback.StateClosed, 10*time.Second)
		w.holders(w.first, "x", 0)
	})
}

// TestOpensAgain: if the first store goes silent once more while somebody is in the second, the
// breaker opens at the next probe, and the second store goes on.
func TestOpensAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		c.silence()
		lease := c.acquire("x")
		c.wire.Heal()
		c.becomes(fallback.StateHalfOpen, 10*time.Second)
		c.wire.Partition()
		c.becomes(fallback.StateOpen, 10*time.Second)
		began := time.Now()
		other := c.acquire("y")
		if took := time.Since(began); !other.Degraded() || took < ttl/2 {
			t.Errorf("after %v: degraded %t", took, other.Degraded())
		}
		release(t, lease, other)
	})
}

// TestSecondGetsItsOwn: the second store gets its grants back as it gave them, with token and handle,
// in batches that do not wait for the first.
func TestSecondGetsItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		wire := chaos.New(w.first.Client(), chaos.Options{})
		second := &handles{Forward: driver.Forward{Driver: w.second.Client()}, t: t}
		d, err := fallback.New(wire, second, &fallback.Options{Clock: w.clock, After: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		r := driver.Request{Name: "x", Owner: "a", TTL: ttl, Tokens: 1}
		shard := d.Shard(r)
		wire.Partition()
		g, err := d.Try(w.ctx, r)
		if err != nil || !g.Degraded || g.Token != 0 || g.Handle != nil {
			t.Fatalf("%+v, %v", g, err)
		}
		if d.Shard(r) == shard {
			t.Error("both stores are one shard")
		}
		if out := d.Renew(w.ctx, []driver.Grant{g}); out[0].Err != nil {
			t.Error(out[0].Err)
		}
		if errs := d.Release(w.ctx, []driver.Grant{g}); errs[0] != nil {
			t.Error(errs[0])
		}
		if second.seen != 2 || d.Shard(r) != shard {
			t.Errorf("the second store was asked %d times; the shard is %s", second.seen, d.Shard(r))
		}
		wire.Heal()
	})
}

// handles is a store that needs its handle and its token back.
type handles struct {
	driver.Forward
	t     *testing.T
	token driver.Token
	seen  int
}

func (h *handles) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := h.Forward.Try(ctx, r)
	g.Handle, h.token = "mine", g.Token
	return g, err
}

func (h *handles) check(grants []driver.Grant) {
	for _, g := range grants {
		h.seen++
		if g.Token != h.token || g.Token == 0 || g.Handle != "mine" || g.Degraded {
			h.t.Errorf("the second store got %+v", g)
		}
	}
}

func (h *handles) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	h.check(grants)
	return h.Forward.Renew(ctx, grants)
}

func (h *handles) Release(ctx context.Context, grants []driver.Grant) []error {
	h.check(grants)
	return h.Forward.Release(ctx, grants)
}

// TestOwnerIsNotUsedAgain: suppose a waiter is cut off from the first store, and the store comes back
// before the second may be used. The withdrawal of its first request must not end its hold (P1).
func TestOwnerIsNotUsedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		c.wire.Partition()
		got := make(chan *holdfast.Lease)
		go func() { got <- c.acquire("x") }()
		c.becomes(fallback.StateOpen, 10*time.Second)
		time.Sleep(time.Second)
		c.wire.Heal()
		lease := <-got
		if lease.Degraded() {
			t.Error("the lease is degraded though the first store answers")
		}
		time.Sleep(5 * ttl)
		if err := lease.Err(); err != nil {
			t.Errorf("the lease was lost: %v", err)
		}
		w.holders(w.first, "x", 1)
		release(t, lease)
	})
}

// TestOperators: Inspect, List, Watch and Break over both stores.
func TestOperators(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{})
		old := c.acquire("old")
		names := func() string {
			var all []string
			for info, err := range c.List(w.ctx, "") {
				if err != nil {
					t.Fatal(err)
				}
				if !info.Idle() {
					all = append(all, info.Name)
				}
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		token := func(name string) holdfast.Token {
			info, err := c.Inspect(w.ctx, name)
			if err != nil || len(info.Holders) != 1 {
				t.Fatalf("%s: %+v, %v", name, info, err)
			}
			return info.Holders[0].Token
		}
		if names() != "old" || token("old") != old.Token() {
			t.Error("the first store is not shown")
		}
		watch, cancel := context.WithCancel(w.ctx)
		defer cancel()
		states := make(chan int, 100)
		go func() {
			for info, err := range c.Watch(watch, "new") {
				if err == nil {
					states <- len(info.Holders)
				}
			}
			close(states)
		}()
		c.silence()
		if err := c.Break(w.ctx, "old", 1); !errors.Is(err, fallback.ErrSilent) {
			t.Errorf("Break while the store is silent: %v", err)
		}
		lease := c.acquire("new")
		if names() != "new" || token("new") != 0 {
			t.Error("the second store is not shown, or its tokens are")
		}
		c.wire.Heal()
		c.becomes(fallback.StateHalfOpen, 10*time.Second)
		fresh := c.acquire("fresh")
		if got := names(); got != "fresh new" || token("new") != 0 || token("fresh") != fresh.Token() {
			t.Errorf("shown are %s", got)
		}
		if err := c.Break(w.ctx, "fresh", fresh.Token()); err != nil {
			t.Error(err)
		}
		<-fresh.Done()
		release(t, lease)
		time.Sleep(time.Second)
		cancel()
		var seen []int
		for n := range states {
			seen = append(seen, n)
		}
		if !slices.Contains(seen, 1) || seen[len(seen)-1] != 0 {
			t.Errorf("the watch showed %v holders", seen)
		}
		_ = old.Release()
		_ = fresh.Release()
	})
}

// TestDegradedLease: everything that can be done with a lease can be done with a degraded one.
func TestDegradedLease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(true, fallback.Options{After: -1})
		c.silence()
		rw := c.RWMutex("x", &holdfast.Options{TTL: ttl})
		lease, err := rw.Write.Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string]func() error{
			"renew": func() error { return lease.Renew(w.ctx) },
			"note":  func() error { return lease.SetNote(w.ctx, "another") },
		} {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := lease.Downgrade(w.ctx); err != nil || lease.Token() != 0 || !lease.Degraded() {
			t.Errorf("downgrade: %v, token %d, degraded %t", err, lease.Token(), lease.Degraded())
		}
		reader, err := rw.Read.Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan *holdfast.Lease)
		go func() { waiting <- c.acquire("x") }()
		time.Sleep(10 * time.Second)
		release(t, lease, reader)
		next := <-waiting
		if !next.Degraded() || next.Token() != 0 {
			t.Errorf("after a wait: degraded %t, token %d", next.Degraded(), next.Token())
		}
		if s := c.d.Status(); s.Degraded != 1 || s.Granted != 3 {
			t.Errorf("the status is %+v", s)
		}
		// An operator of the second store breaks it; the holder is told.
		d := w.second.Client()
		defer d.Close()
		info, _ := d.(driver.Inspector).Inspect(w.ctx, "x")
		if err := d.(driver.Breaker).Break(w.ctx, "x", info.Holders[0].Token); err != nil {
			t.Fatal(err)
		}
		<-next.Done()
		if !errors.Is(next.Err(), holdfast.ErrBroken) {
			t.Errorf("the holder is told %v", next.Err())
		}
	})
}

// TestSilentSecond: a second store that does not answer does not keep the first from being used.
func TestSilentSecond(t *testing.T) {
	inWorld(t, func(w *world) {
		second := &blind{driver.Forward{Driver: w.second.Client()}}
		d, err := fallback.New(w.first.Client(), second, &fallback.Options{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		g, err := d.Try(w.ctx, driver.Request{Name: "x", Owner: "a", TTL: ttl})
		if err != nil || g.Degraded {
			t.Errorf("%+v, %v", g, err)
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
		if _, err := d.Try(w.ctx, driver.Request{Name: "y", Owner: "a", TTL: ttl}); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close the error is %v", err)
		}
	})
}

// blind is a store that answers no question of an operator.
type blind struct{ driver.Forward }

func (blind) Inspect(ctx context.Context, _ string) (driver.Info, error) {
	<-ctx.Done()
	return driver.Info{}, ctx.Err()
}

func (b blind) List(ctx context.Context, _ string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) { yield(b.Inspect(ctx, "")) }
}

// TestCaps: a driver over two stores can do what both can, without fencing.
func TestCaps(t *testing.T) {
	one, other := memlock.NewStore(nil), memlock.NewStore(nil)
	for name, c := range map[string]struct {
		a, b func(*driver.Caps)
		bad  func(driver.Caps) bool
	}{
		"fencing":     {nil, nil, func(c driver.Caps) bool { return c.Fencing || c.TokenBlock > 1 }},
		"shared":      {func(c *driver.Caps) { c.Shared = false }, nil, func(c driver.Caps) bool { return c.Shared || !c.Slots }},
		"slots":       {nil, func(c *driver.Caps) { c.Slots = false }, func(c driver.Caps) bool { return c.Slots || !c.Shared }},
		"fair":        {nil, func(c *driver.Caps) { c.Fair = false }, func(c driver.Caps) bool { return c.Fair }},
		"operations":  {func(c *driver.Caps) { c.Ops &^= driver.OpQueue }, nil, func(c driver.Caps) bool { return c.Ops.Has(driver.OpQueue) }},
		"shortest":    {nil, func(c *driver.Caps) { c.MinTTL = time.Second }, func(c driver.Caps) bool { return c.MinTTL != time.Second }},
		"longest":     {func(c *driver.Caps) { c.MaxTTL = time.Hour }, nil, func(c driver.Caps) bool { return c.MaxTTL != time.Hour }},
		"longest too": {nil, func(c *driver.Caps) { c.MaxTTL = time.Hour }, func(c driver.Caps) bool { return c.MaxTTL != time.Hour }},
		"poll":        {func(c *driver.Caps) { c.Poll = time.Minute }, nil, func(c driver.Caps) bool { return c.Poll != time.Second }},
	} {
		d, err := fallback.New(changed(one.Client(), c.a), changed(other.Client(), c.b), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if c.bad(d.Caps()) {
			t.Errorf("%s: %+v", name, d.Caps())
		}
	}
	a := one.Client()
	d, err := fallback.New(a, nil, nil)
	if err != nil || !d.Caps().Fencing || d.Caps().Store != a.Caps().Store {
		t.Errorf("without a second store: %+v, %v", d.Caps(), err)
	}
}

func changed(d driver.Driver, change func(*driver.Caps)) driver.Driver {
	o := &otherCaps{driver.Forward{Driver: d}, d.Caps()}
	if change != nil {
		change(&o.caps)
	}
	return o
}

type otherCaps struct {
	driver.Forward
	caps driver.Caps
}

func (o *otherCaps) Caps() driver.Caps { return o.caps }

// TestBadOptions: what cannot work is refused (P10).
func TestBadOptions(t *testing.T) {
	s := memlock.NewStore(nil)
	a, b := s.Client(), memlock.NewStore(nil).Client()
	for name, c := range map[string]struct {
		first, second driver.Driver
		o             fallback.Options
	}{
		"no first store":      {nil, b, fallback.Options{}},
		"the same store":      {a, s.Client(), fallback.Options{}},
		"silence":             {a, b, fallback.Options{Silence: time.Millisecond}},
		"negative silence":    {a, b, fallback.Options{Silence: -time.Second}},
		"probe":               {a, b, fallback.Options{Probe: -time.Second}},
		"a second that hides": {a, changed(b, func(c *driver.Caps) { c.Ops &^= driver.OpInspect }), fallback.Options{}},
	} {
		if _, err := fallback.New(c.first, c.second, &c.o); err == nil || !strings.HasPrefix(err.Error(), "fallback: ") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// partly is a store that answers some kinds of requests and hangs in others.
type partly struct {
	driver.Forward
	noTry, noRelease atomic.Bool
}

func (p *partly) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if p.noTry.Load() {
		<-ctx.Done()
		return driver.Grant{Request: r}, driver.Uncertain(ctx.Err())
	}
	return p.Forward.Try(ctx, r)
}

func (p *partly) Release(ctx context.Context, grants []driver.Grant) []error {
	if !p.noRelease.Load() {
		return p.Forward.Release(ctx, grants)
	}
	<-ctx.Done()
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// TestRenewalsAreSignsOfLife: while the first store answers a renewal now and then, its holds may
// go on, so the second store is not used yet.
func TestRenewalsAreSignsOfLife(t *testing.T) {
	inWorld(t, func(w *world) {
		first := &partly{Forward: driver.Forward{Driver: w.first.Client()}}
		d, err := fallback.New(first, w.second.Client(), &fallback.Options{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		g, err := d.Try(w.ctx, driver.Request{Name: "x", Owner: "a", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		first.noTry.Store(true)
		first.noRelease.Store(true)
		r := driver.Request{Name: "x", Owner: "b", TTL: ttl}
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
		first.noRelease.Store(false)
	})
}

// TestOpensUnderOneRequest: one request hangs. A probe is answered at first, and then nothing any more:
// the breaker opens though no other request comes.
func TestOpensUnderOneRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		first := &partly{Forward: driver.Forward{Driver: w.first.Client()}}
		d, err := fallback.New(first, nil, &fallback.Options{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		first.noTry.Store(true)
		failed := make(chan error)
		go func() {
			_, err := d.Try(w.ctx, driver.Request{Name: "x", Owner: "a", TTL: ttl})
			failed <- err
		}()
		time.Sleep(4 * time.Second) // a probe has been answered after 2.5 s
		first.noRelease.Store(true)
		if err := <-failed; !errors.Is(err, fallback.ErrSilent) || !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("the error is %v", err)
		}
		first.noTry.Store(false)
		first.noRelease.Store(false)
	})
}
