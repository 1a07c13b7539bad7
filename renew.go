package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
)

// rearm sets the alarm for whatever is due first.
func (c *Client) rearm() {
	if _, at, ok := c.deadlines.First(); ok {
		c.alarm.Set(at)
	}
	if at, ok := c.renewals.Next(); ok {
		c.alarm.Set(at)
	}
	if at, ok := c.undoing.Next(); ok {
		c.alarm.Set(at)
	}
	if _, at, ok := c.turns.First(); ok {
		c.alarm.Set(at)
	}
}

// tick is the client's one loop: the alarm calls it when something is due. It
// ends the leases and turns whose time is over and sends off what is to be renewed and
// withdrawn, one batch to each shard, and waits for nothing.
func (c *Client) tick() {
	c.mu.Lock()
	now := c.clock.Now()
	var after []func()
	for h, at, ok := c.deadlines.First(); ok && at <= now; h, at, ok = c.deadlines.First() {
		h.machine.Trusted(now) // its deadline is the entry's: it is lost now
		after = append(after, c.lose(h, nil))
	}
	for g, at, ok := c.turns.First(); ok && at <= now; g, at, ok = c.turns.First() {
		c.endTurn(g)
	}
	renewals, withdrawals := c.renewals.Take(now), c.undoing.Take(now)
	c.active += len(renewals) + len(withdrawals)
	c.rearm()
	c.mu.Unlock()

	// A goroutine for each batch under way, so that a store that does not
	// answer holds up neither the deadlines nor the other shards.
	for _, b := range renewals {
		go c.renew(b)
	}
	for _, b := range withdrawals {
		go c.undo(b)
	}
	for _, f := range after {
		f()
	}
}

// renew1 renews one grant.
func (c *Client) renew1(ctx context.Context, g driver.Grant) driver.Renewal {
	out := c.driver.Renew(ctx, []driver.Grant{g})
	if len(out) != 1 {
		return driver.Renewal{Err: fmt.Errorf("the driver returned %d results for one renewal", len(out))}
	}
	return out[0]
}

// renewWithin bounds one batch of renewals. What hangs leaves room for another
// attempt before any deadline, its own or that of others who wait for the shard:
// so a batch also has at most half of the time that is left to any in it, and a
// third of the shortest TTL of all.
const renewWithin = 5 * time.Second

// renew renews one batch.
func (c *Client) renew(b batch.Batch[*hold]) {
	c.mu.Lock()
	now := c.clock.Now()
	holds := b.Items[:0]
	var grants []driver.Grant
	within := renewWithin
	for _, h := range c.deadlines.All() {
		within = min(within, h.how.TTL/3)
	}
	for _, h := range b.Items {
		if h.over || !h.machine.Send(now) {
			continue
		}
		holds, grants = append(holds, h), append(grants, h.grant())
		within = min(within, h.machine.Until().Sub(now)/2)
	}
	c.mu.Unlock()

	var out []driver.Renewal
	if len(grants) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		out = c.driver.Renew(ctx, grants)
		cancel()
	}

	c.mu.Lock()
	var after []func()
	for i, h := range holds {
		r := driver.Renewal{Err: errors.New("the driver returned too few renewals")}
		if i < len(out) {
			r = out[i]
		}
		after = append(after, c.renewed(h, r))
	}
	c.renewals.Done(b.Shard)
	c.rearm()
	c.finish(1)
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// renewed takes in the outcome of a renewal. It returns what is to be done once
// the mutex is free.
func (c *Client) renewed(h *hold, r driver.Renewal) func() {
	nothing := func() {}
	if h.over {
		return nothing
	}
	now := c.clock.Now()
	doubted := h.extras().trouble != nil
	event := Event{Name: h.name, Mode: h.seen(), Token: h.token}
	if r.Err != nil && !driver.Gone(r.Err) {
		h.ensureExtras().trouble = r.Err
		c.keep(h) // the time in doubt is its holder's
		h.machine.Failed(now)
	}
	switch {
	case r.Err == nil && h.machine.Renewed(now, r.Since, r.Valid):
		h.valid, h.passed = r.Valid, false
		if doubted {
			h.extra.trouble = nil
		}
		c.track(h)
		if !doubted {
			return nothing
		}
		event.Until = c.wall(h.machine.Until())
		return func() { c.emit(c.opts.Events.Recovered, slog.LevelInfo, "recovered", event) }
	case r.Err != nil && driver.Gone(r.Err):
		h.machine.Gone()
		return c.lose(h, r.Err)
	case r.Err != nil && h.machine.Trusted(now):
		c.track(h)
		if doubted {
			return nothing
		}
		event.Until, event.Err = c.wall(h.machine.Until()), r.Err
		return func() { c.emit(c.opts.Events.InDoubt, slog.LevelWarn, "in doubt", event) }
	}
	// The answer came after the deadline: whatever it says, a lease that is
	// over is never revived (P2).
	return c.lose(h, nil)
}

// listen takes in the losses that the driver learns of by itself.
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
	owners := make(map[string]bool, len(loss.Owners))
	for _, owner := range loss.Owners {
		owners[owner] = true
	}
	c.mu.Lock()
	var gone []*hold
	for _, h := range c.deadlines.All() {
		if owners[h.owner] {
			gone = append(gone, h)
		}
	}
	for _, g := range slices.Clone(c.turns.All()) {
		// Between two holders there is nobody to be told: the release is.
		if h := g.turn.hold; h.over && owners[h.owner] {
			c.keep(h)
		}
	}
	var after []func()
	for _, h := range gone {
		h.machine.Gone()
		after = append(after, c.lose(h, reason))
	}
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// start counts an operation that Close must wait for, unless the client is
// closed; stop ends it.
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
	c.finish(1)
}

// finish counts operations out, and tells Close when there is nothing left.
func (c *Client) finish(n int) {
	c.active -= n
	if c.closed && c.quiet != nil && c.active == 0 && c.undoing.Len() == 0 {
		close(c.quiet)
		c.quiet = nil
	}
}

// String describes the client to people, without secrets.
func (c *Client) String() string { return fmt.Sprintf("holdfast client of %s", c.caps.Store) }
