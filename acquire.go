package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// acquire is every way to get a lock. It feeds what happens to the engine, which says what
// to do next, on the goroutine of the caller.
func (l *Lock) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	if err := l.check(ctx, op); err != nil {
		return nil, err
	}
	if lease, err := l.nested(ctx, try); err != nil {
		return nil, failed(op, l.name, err)
	} else if lease != nil {
		return lease, nil
	}
	c := l.settings.client
	le := newLease(c, l.name, l.settings, try)
	a := acquisition{le: le}
	next := c.enter(&a)
	defer c.leave(&a)
	for {
		var grant driver.Grant
		var err error
		switch next.Do {
		case engine.Sleep: // behind others of this client
			next = c.sleep(ctx, &a)
			continue
		case engine.Pause: // before the store is asked again
			next = c.pause(ctx, &a, next.For)
			continue
		case engine.Confirm: // renew the grant before it is used
			next = c.confirm(ctx, &a, next.Grant)
			continue
		case engine.Try:
			grant, err = c.driver.Try(ctx, next.Grant.Request)
		case engine.Enqueue:
			grant, err = c.queuer.Enqueue(ctx, next.Grant.Request)
		case engine.Await:
			grant, err = c.await(ctx, &a, &next)
		case engine.Yes:
			a.over = true
			return le, nil
		default:
			a.over = true
			return nil, failed(op, l.name, reasons(ctx, &next)...)
		}
		next = c.answered(ctx, &a, grant, err)
	}
}

// acquisition is what an acquire needs beside its lease.
type acquisition struct {
	le      *Lease
	over    bool // the engine knows that it is; else the driver has panicked
	waiting *waiting
}

// enter brings the caller to the gate of the name.
func (c *Client) enter(a *acquisition) (next engine.Action) {
	le := a.le
	contended := false
	if c.hinter != nil && !le.try {
		// Without the mutex, which no code of others may hold up.
		contended = c.hinter.Contended(c.opts.Prefix + le.caller.Name())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	next = c.stepLocked(engine.Event{Kind: engine.Entered, Caller: &le.caller, Contended: contended})
	if next.Do == engine.Sleep {
		le.news = make(chan struct{}, 1)
	}
	return next
}

// leave ends an acquire. If the driver has panicked, nothing of it may be left either (P6).
func (c *Client) leave(a *acquisition) {
	if a.waiting != nil {
		a.waiting.stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.over {
		c.stepLocked(engine.Event{Kind: engine.Abandoned, Caller: &a.le.caller})
	}
	c.finishLocked(1)
}

// sleep waits until the caller is woken, or its context or the client ends.
func (c *Client) sleep(ctx context.Context, a *acquisition) engine.Action {
	select {
	case <-a.le.news:
	case <-ctx.Done():
	case <-c.closing.Done():
	}
	kind := engine.Woken
	if ctx.Err() != nil || c.closing.Err() != nil {
		kind = engine.Cancelled
	}
	return c.step(engine.Event{Kind: kind, Caller: &a.le.caller})
}

// pause waits for d, or until this client releases the name.
func (c *Client) pause(ctx context.Context, a *acquisition, d time.Duration) engine.Action {
	le := a.le
	c.mu.Lock()
	if le.news == nil {
		le.news = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	kind := engine.Rested
	select {
	case <-timer.C:
	case <-le.news:
		kind = engine.Woken
	case <-ctx.Done():
	case <-c.closing.Done():
	}
	over := ctx.Err()
	if over == nil {
		over = c.closing.Err()
	}
	if over != nil {
		kind = engine.Rested
	}
	return c.step(engine.Event{Kind: kind, Caller: &le.caller, Ended: over})
}

// confirm renews a grant of which little time is left.
func (c *Client) confirm(ctx context.Context, a *acquisition, g driver.Grant) engine.Action {
	r := c.renew1(ctx, g)
	return c.step(engine.Event{Kind: engine.Confirmed, Caller: &a.le.caller, Renewal: r, Ended: ctx.Err()})
}

// await waits for the store to grant the caller's place, or until it is time to ask again,
// for which it returns ErrHeld.
func (c *Client) await(ctx context.Context, a *acquisition, next *engine.Action) (driver.Grant, error) {
	if a.waiting == nil {
		a.waiting = c.waiting(ctx)
	}
	poll, cancel := context.WithTimeout(a.waiting.ctx, next.For)
	defer cancel()
	grant, err := c.queuer.Wait(poll, next.Grant.Request)
	if err != nil && poll.Err() != nil {
		err = ErrHeld // time to ask again, or to see that the context has ended
	}
	return grant, err
}

// answered tells the engine what the store has said.
func (c *Client) answered(ctx context.Context, a *acquisition, g driver.Grant, err error) engine.Action {
	return c.step(engine.Event{Kind: engine.Answered, Caller: &a.le.caller, Grant: g, Err: err, Ended: ctx.Err()})
}

// reasons returns why there is no lease: what the engine says, or else what has ended the
// wait, and what the store said before.
func reasons(ctx context.Context, a *engine.Action) []error {
	switch {
	case errors.Is(a.Err, ErrHeld):
		return []error{a.Err} // a try: this says it all
	case a.Err == nil:
		a.Err = ErrClosed
		if err := ended(ctx); err != nil {
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

// waiting is a caller's context that the end of the client ends too.
type waiting struct {
	ctx    context.Context
	unhook func() bool
	cancel context.CancelCauseFunc
}

func (c *Client) waiting(ctx context.Context) *waiting {
	w := &waiting{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.unhook = context.AfterFunc(c.closing, func() { w.cancel(ErrClosed) })
	return w
}

// stop frees what the context costs.
func (w *waiting) stop() {
	w.unhook()
	w.cancel(nil)
}

// jitter returns a duration between half of d and d, so that clients that started together
// do not stay together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
