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
// ends the leases, maximum holds and turns whose time is over, has what is due sent off,
// and waits for nothing.
func (c *Client) tick() {
	c.mu.Lock()
	now := c.clock.Now()
	var cancels []func()
	for h, at, ok := c.deadlines.First(); ok && at <= now; h, at, ok = c.deadlines.First() {
		if h.machine.Trusted(now) {
			c.expire(h, now) // it is renewed no more, and its entry is the deadline now
		} else {
			cancels = append(cancels, c.lose(h, nil))
		}
	}
	for g, at, ok := c.turns.First(); ok && at <= now; g, at, ok = c.turns.First() {
		c.endTurn(g)
	}
	renewals, withdrawals := c.renewals.Due(now), c.undoing.Due(now)
	if len(renewals)+len(withdrawals) > 0 {
		// On goroutines of their own, so that a store that does not answer holds up
		// neither the deadlines nor the other shards.
		c.active++
		go c.send(renewals, withdrawals, c.sharded(renewals, withdrawals))
	}
	c.rearm()
	c.mu.Unlock()
	cancelAside(cancels)
}

// cancelAside cancels contexts without waiting for it. They may have been made from
// contexts of the caller's own types, whose methods are called then and may block: that
// must hold up neither the client's loop nor the news of other losses.
func cancelAside(cancels []func()) {
	if len(cancels) == 0 {
		return
	}
	go func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
}

// sharded returns the requests by which the driver says to which shards things belong:
// of the renewals first. Nil: the store has one shard only. It is called with the
// client's mutex.
func (c *Client) sharded(renewals []*hold, withdrawals []*withdrawal) []driver.Request {
	if c.sharder == nil {
		return nil
	}
	requests := make([]driver.Request, 0, len(renewals)+len(withdrawals))
	for _, h := range renewals {
		requests = append(requests, h.request())
	}
	for _, w := range withdrawals {
		requests = append(requests, w.grant.Request)
	}
	return requests
}

// send sends off what is due, in batches, with a goroutine for each. It asks the
// driver for the shards without the client's mutex, which no code of others may hold
// up.
func (c *Client) send(renewals []*hold, withdrawals []*withdrawal, asked []driver.Request) {
	shards := make([]string, len(asked))
	for i, r := range asked {
		shards[i] = c.shardOf(r)
	}
	shard := func(i int) string {
		if len(shards) == 0 {
			return ""
		}
		return shards[i]
	}
	c.mu.Lock()
	now := c.clock.Now()
	renew := c.renewals.Send(now, renewals, shard)
	undo := c.undoing.Send(now, withdrawals, func(i int) string { return shard(len(renewals) + i) })
	c.active += len(renew) + len(undo)
	c.rearm()
	c.finish(1)
	c.mu.Unlock()
	for _, b := range renew {
		go c.renew(b)
	}
	for _, b := range undo {
		go c.undo(b)
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
// attempt before any deadline of those in it: so a batch also has at most half of the
// time that is left to any of them (batch.Batch.Within).
const renewWithin = 5 * time.Second

// renew renews one batch.
func (c *Client) renew(b batch.Batch[*hold]) {
	c.mu.Lock()
	began := c.clock.Now()
	holds := b.Items[:0:0]
	var grants []driver.Grant
	for _, h := range b.Items {
		if h.over || !h.machine.Send(began) {
			continue
		}
		holds, grants = append(holds, h), append(grants, h.grant())
	}
	c.mu.Unlock()

	var out []driver.Renewal
	var ranOut bool
	if len(grants) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), b.Within)
		out = c.renewAll(ctx, grants)
		ranOut = ctx.Err() != nil
		cancel()
	}

	c.mu.Lock()
	now := c.clock.Now()
	through := 0
	for _, r := range out[:len(holds)] {
		if r.Err == nil || driver.Gone(r.Err) {
			through++
		}
	}
	ranOut = ranOut && through < len(holds)
	var cancels []func()
	gone := map[string]error{}
	for i, h := range holds {
		r := out[i]
		if ranOut && through > 0 && c.postponed(h, r.Err, now) {
			continue
		}
		if h.over && driver.Gone(r.Err) {
			gone[h.owner] = r.Err
		}
		cancels = append(cancels, c.renewed(h, r))
	}
	cancels = append(cancels, c.gone(gone)...)
	c.renewals.Done(b, now, batch.Result{Through: through, RanOut: ranOut, Took: now.Sub(began)})
	c.rearm()
	c.finish(1)
	c.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// postponed reports whether a renewal was not attempted, because the driver renews one
// lease after the other and the batch's time was over before it came to this one. That
// is no failure: the lease goes out again at once, among the first. When little of
// its time is left it is a failure after all, which the holder is told.
func (c *Client) postponed(h *hold, err error, now driver.Instant) bool {
	if h.over || !errors.Is(err, context.DeadlineExceeded) || h.machine.Until().Sub(now) <= h.valid/3 || !h.machine.Postponed(now) {
		return false
	}
	c.track(h)
	return true
}

// renewed takes in the outcome of a renewal. It returns the cancellation of contexts,
// to be done once the mutex is free. If the hold is over meanwhile it does nothing: see
// gone for what the outcome says of who has the hold now.
func (c *Client) renewed(h *hold, r driver.Renewal) (cancel func()) {
	nothing := func() {}
	if h.over {
		return nothing
	}
	now := c.clock.Now()
	final := c.expire(h, now)
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
		c.emit(c.opts.Events.Recovered, slog.LevelInfo, "recovered", event)
		return nothing
	case r.Err != nil && driver.Gone(r.Err):
		h.machine.Gone()
		return c.lose(h, r.Err)
	case final && h.machine.Trusted(now):
		h.passed = h.passed && r.Err != nil
		return nothing // whatever it says, the deadline stands
	case r.Err != nil && h.machine.Trusted(now):
		c.track(h)
		if doubted {
			return nothing
		}
		event.Until, event.Err = c.wall(h.machine.Until()), r.Err
		c.emit(c.opts.Events.InDoubt, slog.LevelWarn, "in doubt", event)
		return nothing
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
	reasons := make(map[string]error, len(loss.Owners))
	for _, owner := range loss.Owners {
		reasons[owner] = reason
	}
	c.mu.Lock()
	cancels := c.gone(reasons)
	c.mu.Unlock()
	cancelAside(cancels)
}

// gone ends the holds of owners that the store does not know any more, each for its
// reason. It goes by owners, because a hold may have been passed on: suppose A's renewal
// is under way when A releases, B gets the hold as it is, and then the store answers A
// that it is broken. Then B's is. It returns the cancellation of contexts, to be
// done once the mutex is free, with which it is called.
func (c *Client) gone(reasons map[string]error) (cancels []func()) {
	if len(reasons) == 0 {
		return nil
	}
	var gone []*hold
	for _, h := range c.deadlines.All() {
		if reasons[h.owner] != nil {
			gone = append(gone, h)
		}
	}
	for _, g := range slices.Clone(c.turns.All()) {
		// Between two holders there is nobody to be told: the release is.
		if h := g.turn.hold; h.over && reasons[h.owner] != nil {
			c.keep(h)
		}
	}
	for _, h := range gone {
		h.machine.Gone()
		cancels = append(cancels, c.lose(h, reasons[h.owner]))
	}
	return cancels
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
