package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

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
