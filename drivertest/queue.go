package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// queueCases are about waiters in the store's queue (P7).
var queueCases = []testCase{
	{name: "a place is idempotent by owner", need: queues, kinds: modes, run: func(t *trial, a, b driver.Driver) {
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
	{name: "hand-off", need: queues, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
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
	{name: "hand-off counts from before the release", need: queues, kinds: modes, run: func(t *trial, a, b driver.Driver) {
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
	{name: "a claim is short and its renewal is not", need: queues, kinds: modes, run: func(t *trial, a, b driver.Driver) {
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
	{name: "the end of a wait keeps the place", need: queues, kinds: modes, run: func(t *trial, a, b driver.Driver) {
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
	{name: "a dead winner delays at most two polls", need: queues, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		t.deadWaiter(a, a, b, func() time.Duration { return 3 * t.poll }) // until the claim expires, and the live waiter asks
	}},
	{name: "a dead waiter loses its place", need: queues, kinds: modes, timed: true, run: func(t *trial, a, b driver.Driver) {
		t.deadWaiter(a, a, b, func() time.Duration {
			time.Sleep(2*t.poll + t.poll/2) // the waiters' polls, not the store's time
			return t.poll
		})
	}},
	{name: "an expired hold is handed on", need: queues, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g, r := t.take(a, t.brief(t.rival())), t.hold()
		ends := t.until(g)
		if _, err := t.enqueue(b, r); err == nil && t.now() < ends {
			t.Fatalf("P1: Enqueue was granted a held name")
		}
		w := t.waitFor(b, r)
		t.outlive(t.ttl)
		t.after(t.granted(w, t.poll, "P5: a waiter was not granted a name whose holder had died"), g, "the hold before has expired")
	}},
	{name: "close ends waiting", need: queues, run: func(t *trial, a, _ driver.Driver) {
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
