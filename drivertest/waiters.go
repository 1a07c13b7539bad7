package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiting is a waiter at work in a goroutine.
type waiting struct {
	request driver.Request // the last one: see await
	grant   driver.Grant
	err     error
	done    chan struct{}

	gap atomic.Int64 // nanoseconds: the longest that the store did not hear of it

	mu     sync.Mutex
	slow   time.Duration  // it has waited for answers, and in waits longer than it asked for
	asking driver.Instant // since when it waits for an answer; 0: it does not
}

// lost is how much of its time the store and this machine have taken so far for what takes no time.
func (w *waiting) lost(now driver.Instant) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking == 0 {
		return w.slow
	}
	return w.slow + max(0, now.Sub(w.asking))
}

// spent notes how much time was lost, and whether it asks the store now.
func (w *waiting) spent(lost time.Duration, asking driver.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow, w.asking = w.slow+lost, asking
}

// heard remembers, for each owner, the sending of its last request that the store has answered.
type heard struct{ sync.Map }

func (h *heard) set(owner string, sent driver.Instant) { h.Store(owner, sent) }

// over reports whether a place or a claim of an owner may be over by now, because the store has
// not heard of the owner for as long as it keeps them: two polls, or the TTL.
func (h *heard) over(r driver.Request, poll time.Duration, now driver.Instant) bool {
	sent, ok := h.Load(r.Owner)
	return ok && now.Sub(sent.(driver.Instant)) >= min(2*poll, r.TTL)
}

// await waits as package holdfast does: ask, then wait for at most a poll. Where the store says
// that the place or the claim is over, it lines up anew under another owner; but only if that may be so.
func (t *trial) await(ctx context.Context, d driver.Driver, r driver.Request, w *waiting) (driver.Grant, error) {
	w.request = r
	for last := t.clock.Now(); ; {
		g, err := t.asks(ctx, d, w)
		now := t.clock.Now()
		w.gap.Store(max(w.gap.Load(), int64(now.Sub(last))))
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

// asks asks for the place or the hold.
func (t *trial) asks(ctx context.Context, d driver.Driver, w *waiting) (driver.Grant, error) {
	q, _ := driver.As[driver.Queuer](d, driver.OpQueue)
	sent := t.clock.Now()
	w.spent(0, sent)
	g, err := q.Enqueue(ctx, w.request)
	w.spent(t.clock.Now().Sub(sent), 0)
	if errors.Is(err, driver.ErrHeld) {
		t.heard.set(w.request.Owner, sent)
	}
	return g, err
}

// waits waits for less than a poll.
func (t *trial) waits(ctx context.Context, d driver.Driver, w *waiting) (driver.Grant, error) {
	q, _ := driver.As[driver.Queuer](d, driver.OpQueue)
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

// inTime waits until a waiter has ended and reports whether it has within some time and some slack. What the
// store and this machine need for what takes no time is not counted.
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

// granted waits for the waiter's grant.
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

// arrives waits for a grant that must come within some time and some slack.
func (t *trial) arrives(d driver.Driver, r driver.Request, within time.Duration, why string) driver.Grant {
	t.Helper()
	t.track(d, r)
	w := t.waitFor(d, r)
	g := t.granted(w, within, why)
	t.sane(g, w.request)
	return g
}

// arrivesInTime is arrives for goroutines, which must not end the test: it
// returns no grant where there is none.
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
