package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Acquire runs on the caller's goroutine until le, which Init has made, holds its name. It returns why le does
// not, if it does not: the reason that says most comes first. Then nothing is held, and what the store may have
// done is withdrawn in the background (P6). If the context or the core has ended, a reason says so.
func (c *Core) Acquire(ctx context.Context, le *Lease, try bool) (reasons []error) {
	a := acquisition{lease: le, try: try}
	defer c.leave(&a)
	for event := engine.Entered; ; {
		switch c.proceed(ctx, &a, event) {
		case engine.Yes:
			return nil
		case engine.No:
			return a.reasons
		}
		event = a.sleep(ctx, c) // behind others of this client
	}
}

// acquisition is the state of an acquire beside its lease.
type acquisition struct {
	lease   *Lease
	try     bool
	entered bool            // the engine knows of it
	over    bool            // the engine knows that it is over; else the driver has panicked
	reasons []error         // why there is no lease
	waiting context.Context // the caller's, until the core is closed; nil: it has not waited for the store yet
	free    func()          // of waiting
	wakes   driver.Wakes    // nil: not asked for yet, or the store does not tell
}

// leave ends an acquire. If the driver has panicked, it leaves nothing behind either (P6).
func (c *Core) leave(a *acquisition) {
	if a.waiting != nil {
		a.free()
	}
	if a.wakes != nil {
		a.wakes.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.entered {
		return
	}
	if !a.over {
		c.stepLocked(&engine.Event{Kind: engine.Cancelled, Caller: &a.lease.caller})
	}
	c.finishLocked(1)
}

// proceed tells the engine what has happened to the caller, and does what the engine says until the
// caller must sleep, has its lease (Yes), or does not get it (No). It is a function of its own so
// that its frame is gone while the caller sleeps: a thousand goroutines that wait have stacks of
// half the size.
//
//go:noinline
func (c *Core) proceed(ctx context.Context, a *acquisition, kind engine.Kind) engine.Do {
	le := a.lease
	event := engine.Event{Kind: kind, Caller: &le.caller}
	if kind == engine.Entered {
		// Without the mutex: a driver that blocks must not delay the client.
		event.Contended = c.hinter != nil && !a.try && c.hinter.Contended(c.Prefix+le.Name())
	}
	for {
		next := c.acquireStep(a, &event)
		event = engine.Event{Caller: &le.caller}
		switch next.Do {
		case engine.Try:
			event.Kind = engine.Answered
			event.Grant, event.Err = c.Driver.Try(ctx, next.Grant.Request)
		case engine.Enqueue:
			event.Kind = engine.Answered
			event.Grant, event.Err = c.queuer.Enqueue(ctx, next.Grant.Request)
		case engine.Await:
			event.Kind = engine.Answered
			event.Grant, event.Err = c.await(ctx, a, &next)
		case engine.Confirm: // the grant must be renewed before it is used
			event.Kind = engine.Confirmed
			event.Renewal = c.renew(ctx, next.Grant)[0]
		case engine.Pause: // before the store is asked again
			event.Kind = c.pauseFor(ctx, a, &next)
		case engine.Sleep:
			return engine.Sleep
		case engine.Yes:
			a.over = true
			return engine.Yes
		default:
			a.over = true
			a.reasons = reasonsOf(ctx, &next)
			return engine.No
		}
		if event.Ended = ctx.Err(); event.Ended == nil && event.Kind == engine.Rested {
			event.Ended = c.closing.Err()
		}
	}
}

// acquireStep is step for events of an acquire, which end no lease. From the first of them until
// leave Close waits for the acquire.
func (c *Core) acquireStep(a *acquisition, ev *engine.Event) engine.Action {
	c.mu.Lock()
	if !a.entered {
		a.entered = true
		c.active++
	}
	next := c.stepLocked(ev)
	if next.Do == engine.Sleep || next.Do == engine.Pause {
		if a.lease.signal == nil { // before an effect can wake it
			a.lease.signal = make(chan struct{}, 1)
		}
	}
	c.mu.Unlock()
	return next
}

// sleep waits until the caller is woken, or its context or the client ends.
func (a *acquisition) sleep(ctx context.Context, c *Core) engine.Kind {
	select {
	case <-a.lease.signal:
	case <-ctx.Done():
	case <-c.closing.Done():
	}
	if ctx.Err() != nil || c.closing.Err() != nil {
		return engine.Cancelled
	}
	return engine.Woken
}

// pause waits for as long as the engine says, until this client releases the name, or until the store
// tells that it may be free. While the store tells, polls are only there in case that it does not.
func (c *Core) pauseFor(ctx context.Context, a *acquisition, next *engine.Action) engine.Kind {
	d := next.For
	var free <-chan struct{}
	if next.Poll && c.waker != nil {
		if a.wakes == nil {
			a.wakes = c.waker.Wakes(c.Prefix + a.lease.Name())
		}
		if a.wakes != nil {
			free = a.wakes.C()
			if a.wakes.Sure() {
				d = toldPause(next)
			}
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-free:
	case <-a.lease.signal:
		if ctx.Err() == nil && c.closing.Err() == nil {
			return engine.Woken
		}
	case <-ctx.Done():
	case <-c.closing.Done():
	}
	return engine.Rested
}

// toldPause returns how long to wait before the next poll of a store that tells when the name is free.
func toldPause(next *engine.Action) time.Duration {
	d := pause.Jitter(driver.ToldPoll)
	if next.Opens > 0 {
		d = min(d, next.Opens)
	}
	return max(d, next.For)
}

// await waits until the store grants the caller's place, or, returning driver.ErrHeld, until it is time to
// ask again.
func (c *Core) await(ctx context.Context, a *acquisition, next *engine.Action) (driver.Grant, error) {
	if a.waiting == nil {
		a.waiting, a.free = c.UntilClosed(ctx)
	}
	poll, cancel := context.WithTimeout(a.waiting, next.For)
	defer cancel()
	grant, err := c.queuer.Wait(poll, next.Grant.Request)
	if err != nil && poll.Err() != nil && !(ctx.Err() != nil && isUnanswered(err)) {
		err = driver.ErrHeld // time to ask again, or to find that the context has ended
	}
	return grant, err
}

// isUnanswered reports whether an error says what was in the way until the context ended.
func isUnanswered(err error) bool {
	var unanswered *ctxerr.Unanswered
	return errors.As(err, &unanswered)
}

// reasonsOf returns why there is no lease: the engine's error, or else what has ended the wait, and
// what the store said before.
func reasonsOf(ctx context.Context, a *engine.Action) []error {
	switch {
	case errors.Is(a.Err, driver.ErrHeld):
		return []error{a.Err} // a try
	case a.Err == nil:
		a.Err = driver.ErrClosed
		if err := ctxerr.Cause(ctx); err != nil {
			a.Err = err
		}
	}
	errs := []error{a.Err}
	if a.Held != nil {
		errs = append(errs, a.Held)
	}
	if a.Last != nil {
		errs = append(errs, fmt.Errorf("last error of the store: %w", a.Last))
	}
	return errs
}
