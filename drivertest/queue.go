package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var queues = needs{can: opQueue}

var queueCases = []testCase{
	{name: "a place is idempotent by owner", need: queues, kinds: modes, run: enqueueIdempotent},
	{name: "hand-off", need: queues, kinds: modes, time: true, run: handOff},
	{name: "hand-off counts from before the release", need: queues, kinds: modes, run: handOffSince},
	{name: "a claim is short and its renewal is not", need: queues, kinds: modes, run: claimShort},
	{name: "a missed wake-up is made up by a poll", need: queues, kinds: modes, run: missedWakeUp},
	{name: "the end of a wait keeps the place", need: queues, kinds: modes, run: waitKeepsPlace},
	{name: "wait ends with its context", need: queues, run: waitEnds},
	{name: "wait without a place", need: queues, run: waitWithoutPlace},
	{name: "a dead winner delays at most two polls", need: queues, kinds: modes, run: deadWinner},
	{name: "a dead waiter loses its place", need: queues, kinds: modes, timed: true, run: deadWaiter},
	{name: "an expired hold is handed on", need: queues, kinds: modes, time: true, run: expiredHandedOn},
	{name: "close ends waiting", need: queues, run: closeEndsWaiting},
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

func enqueueIdempotent(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	for range 3 {
		t.queued(b, r)
	}
	t.release(a, g)
	first := t.arrives(b, r, t.poll, "P7: a waiter was not granted a free name")
	again, err := t.enqueue(b, r)
	if err != nil {
		t.Fatalf("P6: Enqueue by the holder, to collect its hold again: %v", err)
	}
	if again.Token != first.Token {
		t.Errorf("P3: one hold was collected with tokens %d and %d", first.Token, again.Token)
	}
	t.release(b, again)
	t.freeNow(a, t.rival(), "P6: an owner that asked several times held several places")
}

func handOff(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	t.queued(b, r)
	w := t.waitFor(b, r)
	t.release(a, g)
	next := t.granted(w, t.poll, "P7: a live waiter was not granted the released name")
	t.sane(next, w.request)
	t.after(next, g, "the name was handed over")
	ends := t.until(next)
	if next.Claim { // else a poll was quicker than the wake-up
		t.pass(next.Valid * 3 / 4)
	}
	t.closedUntil(a, ends, "P1: a name that was handed over was granted again")
	t.release(b, next)
	t.freed(a, next, "P4: a handed-over hold was not freed by its release")
}

// handOffSince: the store starts the winner's TTL when the holder releases the name, so the
// winner must count from a request that it sent before that. The driver may have sent one
// after the release was called and before it arrived, so a late Since proves nothing; but
// not all may be late, the longer the driver has been left in peace.
func handOffSince(t *trial) {
	a, b := t.open(), t.open()
	q, _ := driver.As[driver.Queuer](b)
	const rounds = 8
	late := 0
	for round := range rounds {
		g := t.take(a, t.rival())
		r := t.hold()
		t.queued(b, r)
		released := make(chan driver.Instant, 1)
		go func() {
			time.Sleep(time.Millisecond << round) // let the driver's requests about the place arrive
			released <- t.clock.Now()
			a.Release(t.ctx, []driver.Grant{g})
		}()
		ctx, cancel := context.WithTimeout(t.ctx, t.poll)
		next, err := q.Wait(ctx, r)
		cancel()
		before := <-released
		t.withdraw(b, r)
		t.withdraw(a, g.Request)
		if err != nil {
			continue // a poll will tell
		}
		t.sane(next, r)
		if next.Since <= before {
			return
		}
		late++
	}
	if late > 0 {
		t.Errorf("P1: in %d of %d hand-offs Since was later than the release, as if read when the message arrived",
			late, late)
	}
}

func claimShort(t *trial) {
	a, b := t.open(), t.open()
	q, _ := driver.As[driver.Queuer](b)
	g := t.take(a, t.rival())
	r := t.hold()
	r.TTL = max(r.TTL, 4*t.poll)
	t.queued(b, r)
	done := make(chan error, 1)
	go func() {
		time.Sleep(time.Millisecond)
		done <- t.release1(a, g)
	}()
	ctx, cancel := context.WithTimeout(t.ctx, t.poll)
	defer cancel()
	next, err := q.Wait(ctx, r)
	if released := <-done; released != nil {
		t.Fatalf("P4: the holder's release failed: %v", released)
	}
	if err != nil { // no push came: Enqueue collects the hold, and starts its whole TTL
		next, err = q.Enqueue(t.ctx, r)
		if err != nil {
			t.Fatalf("P7: the first waiter was not granted the released name: %v", err)
		}
	} else if !next.Claim {
		t.Errorf("P7: a hold that was handed over is no claim: Grant.Claim MUST be set")
	}
	t.sane(next, r)
	if full := t.renew1(b, next); driver.Gone(full.Err) && t.now() >= t.until(next) {
		return // this machine stood still until the claim had expired
	} else if full.Err != nil {
		t.Errorf("P2: renewing a live claim failed: %v", full.Err)
	} else if full.Valid <= 2*t.poll && full.Valid < r.TTL/2 {
		t.Errorf("P2: a renewed claim is valid for %v, not for its TTL of %v", full.Valid, r.TTL)
	}
}

func missedWakeUp(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	t.queued(b, r)
	t.release(a, g) // no waiter is in Wait, so the wake-up is missed
	t.arrives(b, r, t.poll, "P7: a waiter that missed its wake-up was not granted the free name")
}

func waitKeepsPlace(t *trial) {
	a, b := t.open(), t.open()
	q, _ := driver.As[driver.Queuer](b)
	g := t.take(a, t.rival())
	first, second := t.hold(), t.rival()
	t.queued(b, first)
	ctx, cancel := context.WithTimeout(t.ctx, time.Millisecond)
	_, err := q.Wait(ctx, first) // the caller gives up; another of its process may go on with the place
	cancel()
	if err == nil {
		t.Fatalf("P1: Wait was granted a held name")
	}
	t.queued(b, second)
	t.release(a, g)
	next := t.arrives(b, first, t.poll, "P7: a place whose first Wait ended was not granted")
	if t.caps.Fair {
		if _, err := t.enqueue(b, second); err == nil {
			t.Errorf("P1: two waiters hold one name")
		}
	}
	t.release(b, next)
	t.arrives(b, second, t.poll, "P7: the second waiter was not granted the free name")
}

func waitEnds(t *trial) {
	a, b := t.open(), t.open()
	q, _ := driver.As[driver.Queuer](b)
	t.take(a, t.request())
	r := t.request()
	t.queued(b, r)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Millisecond)
	defer cancel()
	if _, err := q.Wait(ctx, r); err == nil {
		t.Errorf("P1: Wait was granted a held name")
	}
	if took := time.Since(begun); took > t.slack {
		t.Errorf("P7: Wait went on for %v after its context had ended", took)
	}
}

func waitWithoutPlace(t *trial) {
	a, b := t.open(), t.open()
	q, _ := driver.As[driver.Queuer](b)
	t.take(a, t.request())
	ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := q.Wait(ctx, t.request()); err == nil {
		t.Errorf("P1: Wait was granted a held name without a place in its queue")
	}
}

// deadWinner: the first waiter dies shortly before the release, and the name is handed to it.
func deadWinner(t *trial) {
	a, b := t.open(), t.open()
	r := t.rival()
	r.TTL = max(r.TTL, 8*t.poll+2*t.slack)
	g := t.take(a, r)
	dead, live := t.hold(), t.rival()
	dead.TTL = r.TTL
	t.queued(a, dead)
	t.queued(b, live)
	w := t.waitFor(b, live)
	t.release(a, g)
	// Two polls until the claim expires, one until the live waiter asks again.
	t.granted(w, 3*t.poll+t.caps.Guarantees.Lateness,
		"P7: a waiter that never confirms delays a live one by more than two polls")
}

// deadWaiter: the first waiter dies long before the release, so its place is dropped.
func deadWaiter(t *trial) {
	a, b := t.open(), t.open()
	r := t.rival()
	r.TTL = max(r.TTL, 12*t.poll+2*t.slack)
	g := t.take(a, r)
	dead, live := t.hold(), t.rival()
	dead.TTL = r.TTL
	t.queued(a, dead)
	t.queued(b, live)
	w := t.waitFor(b, live)
	time.Sleep(2*t.poll + t.poll/2) // the waiters' polls, not the store's time
	t.release(a, g)
	t.granted(w, t.poll+t.caps.Guarantees.Lateness,
		"P7: a place that nobody confirmed for two polls was granted")
}

func expiredHandedOn(t *trial) {
	a, b := t.open(), t.open()
	r := t.rival()
	r.TTL = t.ttl
	g := t.take(a, r)
	ends := t.until(g)
	r = t.hold()
	if _, err := t.enqueue(b, r); err == nil && t.now() < ends {
		t.Fatalf("P1: Enqueue was granted a held name")
	}
	w := t.waitFor(b, r)
	t.outlive(t.ttl)
	t.after(t.granted(w, t.poll, "P5: a waiter was not granted a name whose holder had died"), g, "the hold before has expired")
}

func closeEndsWaiting(t *trial) {
	a, b := t.open(), t.h.Open(t.TB)
	q, _ := driver.As[driver.Queuer](b)
	r := t.request()
	t.take(a, t.request())
	t.track(a, r)
	if _, err := q.Enqueue(t.ctx, r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P7: Enqueue behind a holder: %v", err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	go func() {
		_, err := q.Wait(ctx, r)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond) // let Wait begin; it must end either way
	if err := b.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	select {
	case err := <-done:
		if err == nil {
			t.Errorf("P1: Wait was granted a held name by Close")
		}
	case <-time.After(t.slack):
		t.Fatalf("P9: Close left a caller in Wait")
	}
}
