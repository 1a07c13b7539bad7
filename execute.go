package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// This file carries out what the engine says: see package engine.

// step feeds an event to the engine, carries out its effects, and returns what the event's caller
// does next.
func (c *Client) step(ev engine.Event) engine.Action {
	c.mu.Lock()
	next := c.stepLocked(&ev)
	cancels := c.takeCancelsLocked()
	c.mu.Unlock()
	cancels.run()
	return next
}

// stepInBackground is step for events that belong to no caller. It cancels contexts on a goroutine
// of their own: they may have been made from contexts of the user's own types, whose methods may
// block, and that must delay neither the client's loop nor the news of other losses.
func (c *Client) stepInBackground(ev engine.Event, operations int) {
	c.mu.Lock()
	c.stepLocked(&ev)
	cancels := c.takeCancelsLocked()
	c.finishLocked(operations)
	c.mu.Unlock()
	if len(cancels) > 0 {
		go cancels.run()
	}
}

// stepLocked is step without the cancelling of contexts: takeCancelsLocked must follow, except
// after events that end no lease.
func (c *Client) stepLocked(ev *engine.Event) engine.Action {
	if ev.Now == 0 {
		ev.Now = c.clock.Now() // a system call
	}
	next := c.engine.Step(ev)
	effects := c.engine.Effects()
	for i := range effects {
		c.carryOutLocked(&effects[i])
	}
	clear(effects) // free what they refer to: the engine keeps the array
	if at, ok := c.engine.Next(); ok {
		c.timer.Set(at)
	}
	return next
}

// carryOutLocked carries out one effect. It waits for nothing.
func (c *Client) carryOutLocked(f *engine.Effect) {
	switch f.Kind {
	case engine.Wake:
		f.Caller.Ref.(*Lease).wakeLocked()
	case engine.Interrupt:
		le := f.Caller.Ref.(*Lease)
		le.interrupted = true
		if le.interrupt != nil {
			go le.interrupt() // it may run a driver's functions
		}
	case engine.End:
		if contexts := f.Caller.Ref.(*Lease).endLocked(f.Err); contexts != nil {
			c.cancels = append(c.cancels, cancellation{contexts, f.Err})
		}
	case engine.Tell:
		c.emit(f.News)
	case engine.FindShards:
		c.active++
		go c.findShards(f.Due)
	case engine.Renew:
		c.active++
		go c.renewBatch(f.Batch)
	case engine.Withdraw:
		c.active++
		go c.withdrawBatch(f.Batch)
	}
}

// takeCancelsLocked returns the contexts that the last steps have ended.
func (c *Client) takeCancelsLocked() cancellations {
	cancels := c.cancels
	c.cancels = nil
	return cancels
}

// tick is called by the timer when something is due.
func (c *Client) tick() { c.stepInBackground(engine.Event{Kind: engine.Ticked}, 0) }

// findShards asks the driver for the shards of requests.
func (c *Client) findShards(d *engine.Due) {
	shards := make([]string, len(d.Requests))
	for i, r := range d.Requests {
		shards[i] = c.shardOf(r)
	}
	c.stepInBackground(engine.Event{Kind: engine.Sharded, Due: d, Shards: shards}, 1)
}

// renewBatch renews holds together.
func (c *Client) renewBatch(b *engine.Batch) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Within)
	renewals := c.renewAll(ctx, b.Grants)
	ranOut := ctx.Err() != nil
	cancel()
	c.stepInBackground(engine.Event{
		Kind: engine.BatchRenewed, Batch: b, Renewals: renewals[:len(b.Grants)], RanOut: ranOut,
	}, 1)
}

// withdrawBatch makes one attempt to withdraw requests and holds that the client no longer wants.
func (c *Client) withdrawBatch(b *engine.Batch) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Within)
	errs := c.releaseAll(ctx, b.Grants)
	ranOut := ctx.Err() != nil
	cancel()
	c.stepInBackground(engine.Event{
		Kind: engine.BatchWithdrawn, Batch: b, Errs: errs[:len(b.Grants)], RanOut: ranOut,
	}, 1)
}

// renew1 renews one grant, on its caller's goroutine.
func (c *Client) renew1(ctx context.Context, g driver.Grant) driver.Renewal {
	out := c.driver.Renew(ctx, []driver.Grant{g})
	if len(out) != 1 {
		err := fmt.Errorf("the driver returned %d results for one renewal", len(out))
		return driver.Renewal{Err: err}
	}
	return out[0]
}

// listen receives the losses that the driver learns of by itself.
func (c *Client) listen(losses <-chan driver.Loss) {
	for {
		select {
		case loss, ok := <-losses:
			if !ok {
				return
			}
			c.lost(loss)
		case <-c.closing.Done():
			return
		}
	}
}

func (c *Client) lost(loss driver.Loss) {
	reason := loss.Err
	if reason == nil {
		reason = ErrNotHeld
	}
	reasons := make(map[string]error, len(loss.Owners))
	for _, owner := range loss.Owners {
		reasons[owner] = reason
	}
	c.stepInBackground(engine.Event{Kind: engine.LossesTold, Losses: reasons}, 0)
}

// start counts an operation that Close must wait for; stop ends it. The error is ErrClosed if the
// client is closed.
func (c *Client) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.active++
	return nil
}

func (c *Client) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(1)
}

// finishLocked counts operations out, and tells Close when none is left.
func (c *Client) finishLocked(n int) {
	c.active -= n
	if c.quiet != nil && c.active == 0 && c.engine.Unconfirmed() == 0 {
		close(c.quiet)
		c.quiet = nil
	}
}
