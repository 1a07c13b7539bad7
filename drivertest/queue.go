package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// queueCases are about waiters in the store's queue (P7).
var queueCases = []testCase{
	{name: "a place is idempotent by owner", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		t.queued(b, r)
		t.queued(b, r)
		t.release(a, g) // no waiter is in Wait: a wake-up is missed, and made up by a poll
		first := t.arrives(b, r, "P7: a waiter that missed its wake-up was not granted the free name")
		again, err := t.enqueue(b, r)
		if err != nil {
			t.Fatalf("P6: Enqueue by the holder, to collect its hold again: %v", err)
		}
		if again.Token != first.Token {
			t.Errorf("P3: one hold was collected with tokens %d and %d", first.Token, again.Token)
		}
		t.release(b, again)
		t.freeNow(a, t.rival(), "P6: an owner that asked several times held several places")
	}},
	{name: "hand-off", need: opQueue, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		w := t.waitFor(b, r)
		t.release(a, g)
		next := t.granted(w, t.poll, "P7: a live waiter was not granted the released name")
		t.after(next, g, "the name was handed over")
		ends := t.until(next)
		if next.Claim { // else a poll was quicker than the wake-up
			t.pass(next.Valid * 3 / 4)
		}
		t.closedUntil(a, ends, "P1: a name that was handed over was granted again")
		t.release(b, next)
		t.freed(a, next, "P4: a handed-over hold was not freed by its release")
	}},
	// The store starts the winner's TTL at the release, so the winner counts from a request that it sent before. It
	// may have sent one after the release was called and before that arrived. So a late Since proves nothing, but not
	// all may be late, the longer the driver is left in peace before.
	{name: "hand-off counts from before the release", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		late := 0
		for round := range 8 {
			g, r := t.behind(a, b)
			next, released, err := t.handOff(a, g, b, r, time.Millisecond<<round)
			t.withdraw(b, r)
			t.withdraw(a, g.Request)
			if err == nil && next.Since <= released {
				return
			} else if err == nil {
				late++
			}
		}
		if late > 0 {
			t.Errorf("P1: in all of %d hand-offs Since was later than the release, as if read when the message arrived", late)
		}
	}},
	{name: "a claim is short and its renewal is not", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.take(a, t.rival()), t.hold()
		r.TTL = max(r.TTL, 4*t.poll)
		t.queued(b, r)
		next, _, err := t.handOff(a, g, b, r, time.Millisecond)
		if err != nil { // no push came: Enqueue collects the hold, and starts its whole TTL
			if next, err = t.enqueue(b, r); err != nil {
				t.Fatalf("P7: the first waiter was not granted the released name: %v", err)
			}
		} else if !next.Claim {
			t.Errorf("P7: a hold that was handed over is no claim: Grant.Claim MUST be set")
		}
		if full := t.renew1(b, next); driver.Gone(full.Err) && t.now() >= t.until(next) {
			return // this machine stood still until the claim had expired
		} else if full.Err != nil {
			t.Errorf("P2: renewing a live claim failed: %v", full.Err)
		} else if full.Valid <= 2*t.poll && full.Valid < r.TTL/2 {
			t.Errorf("P2: a renewed claim is valid for %v, not for its TTL of %v", full.Valid, r.TTL)
		}
	}},
	{name: "the end of a wait keeps the place", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, first := t.behind(a, b)
		second := t.rival()
		if _, err := t.wait(b, t.rival(), 20*time.Millisecond); err == nil {
			t.Errorf("P1: Wait was granted a held name without a place in its queue")
		}
		begun := time.Now()
		if _, err := t.wait(b, first, 5*time.Millisecond); err == nil { // another of the process may go on with the place
			t.Errorf("P1: Wait was granted a held name")
		}
		if took := time.Since(begun); took > t.slack {
			t.Errorf("P7: Wait went on for %v after its context had ended", took)
		}
		t.queued(b, second)
		t.release(a, g)
		next := t.arrives(b, first, "P7: a place whose first Wait ended was not granted")
		if t.caps.Fair {
			t.waits(b, second, "P1: two waiters hold one name")
		}
		t.release(b, next)
		t.arrives(b, second, "P7: the second waiter was not granted the free name")
	}},
	{name: "a dead winner delays at most two polls", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		t.deadWaiter(a, a, b, func() time.Duration { return 3 * t.poll }) // until the claim expires, and the live waiter asks
	}},
	{name: "a dead waiter loses its place", need: opQueue, kinds: modes, timed: true, run: func(t *trial, a, b driver.Driver) {
		t.deadWaiter(a, a, b, func() time.Duration {
			time.Sleep(2*t.poll + t.poll/2) // the waiters' polls, not the store's time
			return t.poll
		})
	}},
	{name: "an expired hold is handed on", need: opQueue, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g, r := t.take(a, t.brief(t.rival())), t.hold()
		ends := t.until(g)
		if _, err := t.enqueue(b, r); err == nil && t.now() < ends {
			t.Fatalf("P1: Enqueue was granted a held name")
		}
		w := t.waitFor(b, r)
		t.outlive(t.ttl)
		t.after(t.granted(w, t.poll, "P5: a waiter was not granted a name whose holder had died"), g, "the hold before has expired")
	}},
	{name: "close ends waiting", need: opQueue, run: func(t *trial, a, _ driver.Driver) {
		b, r := t.h.Open(t.TB), t.request()
		t.take(a, t.request())
		t.track(a, r)
		if _, err := ops(b).Enqueue(t.ctx, r); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("P7: Enqueue behind a holder: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := t.wait(b, r, 30*time.Second)
			done <- err
		}()
		time.Sleep(5 * time.Millisecond) // let Wait begin; it must end either way
		t.close(b)
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("P1: Wait was granted a held name by Close")
			}
		case <-time.After(t.slack):
			t.Fatalf("P9: Close left a caller in Wait")
		}
	}},
}

// handOff lets a holder release the name while a waiter is in Wait. It returns what Wait returned, and an instant
// before the release.
func (t *trial) handOff(
	holder driver.Driver, g driver.Grant, d driver.Driver, r driver.Request, after time.Duration,
) (driver.Grant, driver.Instant, error) {
	t.Helper()
	type release struct {
		at  driver.Instant
		err error
	}
	released := make(chan release, 1)
	go func() {
		time.Sleep(after) // let Wait begin, and the requests about the place arrive
		at := t.clock.Now()
		released <- release{at, holder.Release(t.ctx, []driver.Grant{g})[0]}
	}()
	next, err := t.wait(d, r, t.poll)
	before := <-released
	if before.err != nil {
		t.Fatalf("P4: the holder's release failed: %v", before.err)
	}
	if err == nil {
		t.sane(next, r)
	}
	return next, before.at, err
}

// deadWaiter: of two waiters the first dies before the name is released. Dies returns how long the other may have to
// wait after the release.
func (t *trial) deadWaiter(holder, dying, living driver.Driver, dies func() time.Duration) {
	t.Helper()
	r, dead, live := t.rival(), t.hold(), t.rival()
	r.TTL = max(r.TTL, 12*t.poll+2*t.slack)
	dead.TTL, dead.MinHold = r.TTL, time.Hour // it has begun no work, so nobody waits for its minimum hold
	g := t.take(holder, r)
	if _, err := t.enqueue(dying, dead); errors.Is(err, driver.ErrUnsupported) {
		dead.MinHold = 0
	}
	t.queued(dying, dead)
	t.queued(living, live)
	w := t.waitFor(living, live)
	within := dies()
	t.release(holder, g)
	t.granted(w, within+t.caps.Guarantees.Lateness, "P7: a waiter that is gone delays a live one by more than two polls")
}

// enqueue calls Enqueue once, and withdraws the request when the case ends.
func (t *trial) enqueue(d driver.Driver, r driver.Request) (driver.Grant, error) {
	t.Helper()
	t.track(d, r)
	sent := t.clock.Now()
	g, err := ops(d).Enqueue(t.ctx, r)
	if errors.Is(err, driver.ErrHeld) {
		t.heard.Store(r.Owner, sent)
	} else if err == nil {
		t.sane(g, r)
	}
	return g, err
}

// queued takes a place behind a holder.
func (t *trial) queued(d driver.Driver, r driver.Request) {
	t.Helper()
	if _, err := t.enqueue(d, r); err == nil {
		t.Fatalf("P1: Enqueue was granted a held name")
	} else if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P7: Enqueue behind a holder: %v", err)
	}
}

// behind lets one client hold the case's name, and another wait for a hold of the case's kind.
func (t *trial) behind(holder, waiter driver.Driver) (driver.Grant, driver.Request) {
	t.Helper()
	g, r := t.take(holder, t.rival()), t.hold()
	t.queued(waiter, r)
	return g, r
}

// waits asserts that Enqueue grants nothing.
func (t *trial) waits(d driver.Driver, r driver.Request, why string) {
	t.Helper()
	if _, err := t.enqueue(d, r); err == nil {
		t.Errorf("%s", why)
	}
}

// wait calls Wait once, for at most so long.
func (t *trial) wait(d driver.Driver, r driver.Request, most time.Duration) (driver.Grant, error) {
	ctx, cancel := context.WithTimeout(t.ctx, most)
	defer cancel()
	return ops(d).Wait(ctx, r)
}

// waiter is one that waits in a goroutine of its own.
type waiter struct {
	request driver.Request // await may change the owner
	grant   driver.Grant
	err     error
	done    chan struct{}

	asked atomic.Int64 // how often the store has answered its Enqueue
	gap   atomic.Int64 // nanoseconds: the longest time between two answers
}

// dropped reports whether the store may have dropped a place or a claim by now, because this machine stood still: the
// store keeps it for two polls, or for the TTL if that is shorter, after the owner's last request.
func (t *trial) dropped(places ...driver.Request) bool {
	return slices.ContainsFunc(places, func(r driver.Request) bool {
		sent, ok := t.heard.Load(r.Owner)
		return ok && t.clock.Now().Sub(sent.(driver.Instant)) >= min(2*t.poll, r.TTL)
	})
}

// await waits as package holdfast does: it asks, waits for at most a poll, and asks again. If the store has dropped
// the place or the claim by right, await takes another place under another owner.
func (t *trial) await(ctx context.Context, d driver.Driver, r driver.Request, w *waiter) (driver.Grant, error) {
	w.request = r
	for last := t.clock.Now(); ; {
		sent := t.clock.Now()
		g, err := ops(d).Enqueue(ctx, w.request)
		now := t.clock.Now()
		w.gap.Store(max(w.gap.Load(), int64(now.Sub(last))))
		w.asked.Add(1)
		last = now
		switch {
		case driver.Gone(err) && t.dropped(w.request):
			w.request.Owner = newOwner()
			t.track(d, w.request)
			continue
		case errors.Is(err, driver.ErrHeld):
			t.heard.Store(w.request.Owner, sent)
		case !errors.Is(err, driver.ErrUncertain):
			return g, err
		}
		poll, cancel := context.WithTimeout(ctx, t.poll*3/4)
		g, err = ops(d).Wait(poll, w.request)
		cancel()
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil:
			return g, ctx.Err()
		case errors.Is(err, driver.ErrClosed):
			return g, err
		}
	}
}

// waitFor starts a waiter.
func (t *trial) waitFor(d driver.Driver, r driver.Request) *waiter {
	t.track(d, r)
	w := &waiter{done: make(chan struct{})}
	t.Cleanup(func() { <-w.done })
	ctx, cancel := context.WithCancel(t.ctx)
	t.Cleanup(cancel)
	go func() {
		defer close(w.done)
		w.grant, w.err = t.await(ctx, d, r, w)
	}()
	return w
}

// outcome waits for the waiter's grant, which must come within some time and the slack. On a slow store it may come
// later: it is late only if the waiter has asked more often than once a poll.
func (t *trial) outcome(w *waiter, within time.Duration) error {
	begun, asked := t.clock.Now(), w.asked.Load()
	for {
		select {
		case <-w.done:
			return w.err
		case <-time.After(min(within+t.slack, 100*time.Millisecond)):
			if t.clock.Now().Sub(begun) > within+t.slack && w.asked.Load()-asked > 1+int64(within/t.poll) {
				return errors.New("not granted within " + (within + t.slack).String())
			}
		}
	}
}

// granted returns the waiter's grant, which must come within some time and the slack.
func (t *trial) granted(w *waiter, within time.Duration, why string) driver.Grant {
	t.Helper()
	if err := t.outcome(w, within); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	t.sane(w.grant, w.request)
	return w.grant
}

// arrives starts a waiter and returns its grant, which must come within a poll and the slack.
func (t *trial) arrives(d driver.Driver, r driver.Request, why string) driver.Grant {
	t.Helper()
	return t.granted(t.waitFor(d, r), t.poll, why)
}
