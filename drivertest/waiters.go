package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiting is a waiter in a goroutine of its own.
type waiting struct {
	request driver.Request // await may change the owner
	grant   driver.Grant
	err     error
	done    chan struct{}

	gap atomic.Int64 // nanoseconds: the longest time between two answers of the store to this waiter; 0: there was none

	mu     sync.Mutex
	slow   time.Duration  // that answers took, and by which waits were longer than their context
	asking driver.Instant // when it sent the request that is under way; 0: none is
}

// lost returns how much time the store and this machine have needed so far for steps that
// ideally take none.
func (w *waiting) lost(now driver.Instant) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking == 0 {
		return w.slow
	}
	return w.slow + max(0, now.Sub(w.asking))
}

// spent adds to the time that was lost, and records whether a request is under way.
func (w *waiting) spent(lost time.Duration, asking driver.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow, w.asking = w.slow+lost, asking
}

// heard records, for each owner, when its last request was sent that the store has answered.
type heard struct{ sync.Map }

func (h *heard) set(owner string, sent driver.Instant) { h.Store(owner, sent) }

// over reports whether the store may have dropped the owner's place or claim by now: it
// keeps them for two polls, or for the TTL if that is shorter, after the owner's last request.
func (h *heard) over(r driver.Request, poll time.Duration, now driver.Instant) bool {
	sent, ok := h.Load(r.Owner)
	return ok && now.Sub(sent.(driver.Instant)) >= min(2*poll, r.TTL)
}

// dropped reports whether the store may have dropped one of the places by now, because this machine stood still.
func (t *trial) dropped(places ...driver.Request) bool {
	return slices.ContainsFunc(places, func(r driver.Request) bool { return t.heard.over(r, t.poll, t.clock.Now()) })
}

// await waits as package holdfast does: it asks, waits for at most a poll, and asks again. If
// the store answers that the place or the claim is gone, and may have dropped it by right,
// await takes another place under another owner.
func (t *trial) await(ctx context.Context, d driver.Driver, r driver.Request, w *waiting) (driver.Grant, error) {
	w.request = r
	for last := t.clock.Now(); ; {
		g, err := t.asks(ctx, d, w)
		now := t.clock.Now()
		w.gap.Store(max(w.gap.Load(), int64(now.Sub(last)), 1))
		last = now
		switch {
		case driver.Gone(err) && t.heard.over(w.request, t.poll, now):
			w.request.Owner = newOwner()
			t.track(d, w.request)
			continue
		case err == nil || (!errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUncertain)):
			return g, err
		}
		g, err = t.waits(ctx, d, w)
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

// asks calls Enqueue.
func (t *trial) asks(ctx context.Context, d driver.Driver, w *waiting) (driver.Grant, error) {
	q, _ := driver.As[driver.Queuer](d)
	sent := t.clock.Now()
	w.spent(0, sent)
	g, err := q.Enqueue(ctx, w.request)
	w.spent(t.clock.Now().Sub(sent), 0)
	if errors.Is(err, driver.ErrHeld) {
		t.heard.set(w.request.Owner, sent)
	}
	return g, err
}

// waits calls Wait for three quarters of a poll.
func (t *trial) waits(ctx context.Context, d driver.Driver, w *waiting) (driver.Grant, error) {
	q, _ := driver.As[driver.Queuer](d)
	most, begun := t.poll*3/4, t.clock.Now()
	poll, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	g, err := q.Wait(poll, w.request)
	w.spent(max(0, t.clock.Now().Sub(begun)-most), 0)
	return g, err
}

// waitFor starts a waiter.
func (t *trial) waitFor(d driver.Driver, r driver.Request) *waiting {
	w := &waiting{done: make(chan struct{})}
	t.Cleanup(func() { <-w.done })
	ctx, cancel := context.WithCancel(t.ctx)
	t.Cleanup(cancel)
	go func() {
		defer close(w.done)
		w.grant, w.err = t.await(ctx, d, r, w)
	}()
	return w
}

// inTime waits until a waiter has ended, and reports whether it did within some time and the
// slack. Time that was lost does not count.
func (t *trial) inTime(w *waiting, within time.Duration) bool {
	begun := t.clock.Now()
	before := w.lost(begun)
	for {
		now := t.clock.Now()
		left := within + t.slack + w.lost(now) - before - now.Sub(begun)
		select {
		case <-w.done:
			return true
		case <-time.After(min(max(left, 0), 100*time.Millisecond)):
			if left <= 0 {
				return false
			}
		}
	}
}

// granted returns the waiter's grant, which must come within some time and the slack.
func (t *trial) granted(w *waiting, within time.Duration, why string) driver.Grant {
	t.Helper()
	if !t.inTime(w, within) {
		t.Fatalf("%s: not granted within %v", why, within+t.slack)
	}
	if w.err != nil {
		t.Fatalf("%s: %v", why, w.err)
	}
	return w.grant
}

// arrives starts a waiter and returns its grant, which must come within some time and the slack.
func (t *trial) arrives(d driver.Driver, r driver.Request, within time.Duration, why string) driver.Grant {
	t.Helper()
	t.track(d, r)
	w := t.waitFor(d, r)
	g := t.granted(w, within, why)
	t.sane(g, w.request)
	return g
}

// arrivesInTime is arrives for goroutines of a case, which must not end the test: without a
// grant it reports the failure and returns the zero grant.
func (t *trial) arrivesInTime(d driver.Driver, r driver.Request, within time.Duration, why string) driver.Grant {
	t.track(d, r)
	w := t.waitFor(d, r)
	switch {
	case !t.inTime(w, within):
		t.Errorf("%s: not granted within %v", why, within+t.slack)
	case w.err != nil:
		t.Errorf("%s: %v", why, w.err)
	default:
		return w.grant
	}
	return driver.Grant{}
}
