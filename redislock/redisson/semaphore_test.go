package redisson

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestSemaphoreOnTheWire asserts what Redisson reads and hears.
func TestSemaphoreOnTheWire(t *testing.T) {
	w := newWorld(t)
	ctx, s := t.Context(), w.semaphore()
	heard := w.hears("redisson_sc:{n}")
	tells := func(want string) {
		t.Helper()
		if m := heard(); m != want {
			t.Errorf("published %q, not %q", m, want)
		}
	}
	step := func(what string, want any, f func() (any, error)) {
		t.Helper()
		if got, err := f(); err != nil || got != want {
			t.Errorf("%s: %v, %v; right is %v", what, got, err, want)
		}
	}
	step("Available of none", 0, func() (any, error) { return s.Available(ctx) })
	step("TryAcquire of none", false, func() (any, error) { return s.TryAcquire(ctx, 1) })
	if err := s.Release(ctx, 1); !errors.Is(err, ErrNoSemaphore) {
		t.Errorf("Release of no semaphore returned %v", err)
	}
	w.is(nil)
	step("Create", true, func() (any, error) { return s.Create(ctx, 3, 0) })
	tells("3")
	step("Create again", false, func() (any, error) { return s.Create(ctx, 9, 0) })
	w.is("3")
	step("TryAcquire", true, func() (any, error) { return s.TryAcquire(ctx, 2) })
	w.is("1")
	step("TryAcquire of more than there are", false, func() (any, error) { return s.TryAcquire(ctx, 2) })
	w.is("1")
	step("Release", nil, func() (any, error) { return nil, s.Release(ctx, 2) })
	tells("3")
	step("Add", nil, func() (any, error) { return nil, s.Add(ctx, 4) })
	tells("7")
	step("Drain", 7, func() (any, error) { return s.Drain(ctx) })
	w.is("0")
	step("Drain of none", 0, func() (any, error) { return s.Drain(ctx) })
	step("Add of fewer", nil, func() (any, error) { return nil, s.Add(ctx, -2) })
	tells("-2")
	step("Available", -2, func() (any, error) { return s.Available(ctx) })
	step("Drain of fewer than none", 0, func() (any, error) { return s.Drain(ctx) })
	step("TryAcquire of fewer than none", false, func() (any, error) { return s.TryAcquire(ctx, 1) })

	w.do("DEL", "n")
	step("Create for a time", true, func() (any, error) { return s.Create(ctx, 1, time.Hour) })
	step("Release", nil, func() (any, error) { return nil, s.Release(ctx, 1) })
	if left := w.do("PTTL", "n").(int64); left <= 0 || left > time.Hour.Milliseconds() {
		t.Errorf("a semaphore for an hour ends in %d ms", left)
	}
}

func TestSemaphoreWaits(t *testing.T) {
	w := newWorld(t)
	s, other := w.created(2), w.semaphore()
	if err := s.Acquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	acquired := w.begin(func() error { return other.Acquire(t.Context(), 2) })
	w.subscribed(s.channel)
	for range 2 {
		if err := s.Release(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := acquired(); err != nil {
		t.Fatal(err)
	}
	w.is("0")

	ctx, cancel := context.WithCancel(t.Context())
	acquired = w.begin(func() error { return s.Acquire(ctx, 1) })
	w.subscribed(s.channel)
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) {
		t.Errorf("Acquire whose context ended returned %v", err)
	}
	if err := s.Release(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	// A request that was under way may have taken the permit; then it comes back.
	w.until("the permit", func() bool { return w.do("GET", "n") == "1" })
	if _, err := s.TryAcquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("TryAcquire under a context that had ended returned %v", err)
	}
	w.is("1")
	if err := s.Release(ctx, 1); err != nil && !errors.Is(err, ErrUncertain) {
		t.Errorf("Release under a context that had ended returned %v", err)
	}
	w.until("the release under a context that had ended", func() bool { return w.do("GET", "n") == "2" })
}

// TestSemaphoreIsWokenByTheChannel: by polls alone the hand-overs would take far longer than the bound.
func TestSemaphoreIsWokenByTheChannel(t *testing.T) {
	w := newWorld(t)
	s, other := w.created(1), w.semaphore()
	const rounds = 4 * int(hanging/longestPoll)
	played := w.begin(func() error {
		for range rounds {
			if err := s.Acquire(t.Context(), 1); err != nil {
				return err
			}
			acquired := w.begin(func() error { return other.Acquire(t.Context(), 1) })
			w.subscribed(s.channel)
			err := errors.Join(s.Release(t.Context(), 1), acquired(), other.Release(t.Context(), 1))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := played(); err != nil {
		t.Fatal(err)
	}
}

// TestSemaphorePollsWithoutChannel: the user may not subscribe.
func TestSemaphorePollsWithoutChannel(t *testing.T) {
	w := newWorld(t)
	s := w.created(1)
	w.do("ACL", "SETUSER", "deaf", "on", "nopass", "resetchannels", "allkeys", "allcommands")
	deaf, err := w.client(connect(t, w.server.Addr, redislock.Command{Args: []string{"AUTH", "deaf", "x"}})).Semaphore("n")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	before := w.calls()
	acquired := w.begin(func() error { return deaf.Acquire(t.Context(), 1) })
	w.until("a poll", func() bool { return w.calls() >= before+3 })
	if err := s.Release(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := acquired(); err != nil {
		t.Fatal(err)
	}
}

// TestSemaphoreAbandoned: the context ends after the server has taken the permits. They come back.
func TestSemaphoreAbandoned(t *testing.T) {
	w := newWorld(t)
	w.created(3)
	proxy := chaos.StartProxy(t, w.server.Addr)
	s, err := w.client(connect(t, proxy.Addr)).Semaphore("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), MaxCount); err != nil { // from now on the server knows the script
		t.Fatal(err)
	}
	proxy.HoldReplies()
	ctx, cancel := context.WithCancel(t.Context())
	acquired := w.begin(func() error { return s.Acquire(ctx, 2) })
	w.until("the request at the server", func() bool { return w.do("GET", "n") == "1" })
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire whose context ended returned %v", err)
	}
	proxy.Heal()
	w.until("the permits", func() bool { return w.do("GET", "n") == "3" })
}

// TestSemaphoreLostReply: nobody knows whether the permits were taken.
func TestSemaphoreLostReply(t *testing.T) {
	w := newWorld(t)
	w.created(3)
	proxy := chaos.StartProxy(t, w.server.Addr)
	s, err := w.client(connect(t, proxy.Addr)).Semaphore("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), MaxCount); err != nil { // from now on the server knows the script
		t.Fatal(err)
	}
	proxy.HoldReplies()
	acquired := w.begin(func() error { return s.Acquire(t.Context(), 2) })
	w.until("the request at the server", func() bool { return w.do("GET", "n") == "1" })
	proxy.Cut()
	if err := acquired(); !errors.Is(err, ErrUncertain) {
		t.Errorf("Acquire whose reply was lost returned %v, not ErrUncertain", err)
	}
}

// TestSemaphoreCrowd: never are more permits taken than there are, and none is lost.
func TestSemaphoreCrowd(t *testing.T) {
	w := newWorld(t)
	const permits = 3
	semaphores := []*Semaphore{w.created(permits), w.semaphore()}
	var taken, most atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				s, n := semaphores[i%2], 1+i%permits
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*3*time.Millisecond)
				err := s.Acquire(ctx, n)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				now := taken.Add(int64(n))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				taken.Add(int64(-n))
				if err := s.Release(t.Context(), n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() > permits || most.Load() == 0 {
		t.Errorf("%d permits of %d were taken at a time", most.Load(), permits)
	}
	w.until("all permits", func() bool { return w.do("GET", "n") == "3" })
}

// TestWakePassesOn: a waiter that is woken and leaves without trying wakes another in its place.
func TestWakePassesOn(t *testing.T) {
	w := newWorld(t)
	c := w.client(connect(t, w.server.Addr))
	join := func(permits int) (*channel, *waiter) {
		t.Helper()
		ch, waiter, err := c.join("x", permits)
		if err != nil {
			t.Fatal(err)
		}
		w.until("the confirmation", func() bool { return len(waiter.woken) > 0 })
		<-waiter.woken
		return ch, waiter
	}
	ch, first := join(1)
	_, big := join(5)
	_, second := join(1)
	c.heard(ch, "1")
	if len(first.woken) != 1 || len(big.woken) != 0 || len(second.woken) != 0 {
		t.Fatal("one free permit did not wake the first waiter alone")
	}
	c.leave("x", ch, first)
	if len(big.woken) != 0 || len(second.woken) != 1 {
		t.Fatal("the wake was not passed on to a waiter that it is enough for")
	}
	<-second.woken
	c.heard(ch, "")
	if len(big.woken) != 1 || len(second.woken) != 1 {
		t.Error("after a reconnection not all were woken")
	}
}

// TestSubscriptionEnds when nobody waits, and with the client.
func TestSubscriptionEnds(t *testing.T) {
	w := newWorld(t)
	s := w.semaphore()
	ctx, cancel := context.WithCancel(t.Context())
	acquired := w.begin(func() error { return s.Acquire(ctx, 1) })
	w.subscribed(s.channel)
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	none := func() bool { return w.do("PUBSUB", "NUMSUB", s.channel).([]any)[1] == int64(0) }
	w.until("the end of the subscription", none)

	acquired = w.begin(func() error { return s.Acquire(t.Context(), 1) })
	w.subscribed(s.channel)
	if err := s.c.Close(); err != nil {
		t.Error(err)
	}
	if err := acquired(); !errors.Is(err, ErrClosed) {
		t.Errorf("Acquire of a closed client returned %v", err)
	}
	w.until("the end of the subscription", none)
	if err := s.Release(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Release of a closed client returned %v", err)
	}
	if err := s.c.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the second Close returned %v", err)
	}
}

// TestOtherKinds: what is at the name is something else.
func TestOtherKinds(t *testing.T) {
	w := newWorld(t)
	ctx, s, l := t.Context(), w.semaphore(), w.latch()
	for what, set := range map[string][]string{"a hash": {"HSET", "n", "a", "1"}, "a text": {"SET", "n", "abc"}} {
		w.do("DEL", "n")
		w.do(set...)
		before := w.do("DUMP", "n")
		for operation, f := range map[string]func() error{
			"Create":     func() error { _, err := s.Create(ctx, 1, 0); return err },
			"TryAcquire": func() error { _, err := s.TryAcquire(ctx, 1); return err },
			"Acquire":    func() error { return s.Acquire(ctx, 1) },
			"Release":    func() error { return s.Release(ctx, 1) },
			"Add":        func() error { return s.Add(ctx, 1) },
			"Drain":      func() error { _, err := s.Drain(ctx); return err },
			"Available":  func() error { _, err := s.Available(ctx); return err },
			"Latch":      func() error { _, err := l.Create(ctx, 1); return err },
			"CountDown":  func() error { _, err := l.CountDown(ctx); return err },
			"Count":      func() error { _, err := l.Count(ctx); return err },
			"Await":      func() error { return l.Await(ctx) },
			"Delete":     func() error { _, err := l.Delete(ctx); return err },
		} {
			if err := f(); !errors.Is(err, ErrMismatch) {
				t.Errorf("%s of %s returned %v, not ErrMismatch", operation, what, err)
			}
		}
		if w.do("DUMP", "n") != before {
			t.Errorf("%s was changed", what)
		}
	}
}

// TestNumbers: no request is sent for what is out of range.
func TestNumbers(t *testing.T) {
	w := newWorld(t)
	ctx, s, l := t.Context(), w.created(1), w.latch()
	before := w.calls()
	for _, n := range []int{0, -1, math.MinInt, MaxCount + 1} {
		_, err1 := s.TryAcquire(ctx, n)
		_, err2 := s.Create(ctx, n, 0)
		_, err3 := l.Create(ctx, n)
		if err1 == nil || err2 == nil || err3 == nil || s.Acquire(ctx, n) == nil || s.Release(ctx, n) == nil {
			t.Errorf("%d is taken for a number of permits or events", n)
		}
	}
	if _, err := s.Create(ctx, 1, time.Microsecond); err == nil {
		t.Error("a semaphore for a microsecond was asked for")
	}
	if s.Add(ctx, MaxCount+1) == nil || s.Add(ctx, -MaxCount-1) == nil {
		t.Error("too many permits more or fewer were asked for")
	}
	if _, err := s.c.Semaphore(""); err == nil {
		t.Error("a name was empty")
	}
	if got := w.calls(); got != before {
		t.Errorf("%d scripts were run", got-before)
	}
	w.is("1")
}

// TestUnknownScript: the server has forgotten the scripts.
func TestUnknownScript(t *testing.T) {
	w := newWorld(t)
	s := w.created(2)
	w.do("SCRIPT", "FLUSH")
	if ok, err := s.TryAcquire(t.Context(), 2); !ok || err != nil {
		t.Errorf("after SCRIPT FLUSH: %v, %v", ok, err)
	}
	w.is("0")
}
