package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/gate"
	"github.com/holdfastlock/holdfast/internal/lease"
)

// gateway is the gate of one name, and what wakes its head between polls.
type gateway struct {
	gate.Gate
	turn turn
	poke chan struct{} // one value: this client has released the name
}

// acquisition is one goroutine's way to a lock: through the gate of the name,
// and, while it is the head there, with the store.
type acquisition struct {
	gate.Waiter
	lock  *Lock
	gate  *gateway
	start driver.Instant // if anybody is told how long it took
	news  chan struct{}  // closed when the role changes; made only for who waits behind others
	lease *Lease         // once there is one

	step    step
	contact bool          // the store has answered: its errors are retried now
	held    *HeldError    // the last thing it said of the holder
	last    error         // its last error
	pause   time.Duration // before asking again: grows
	waiting *waiting      // once it waits for the store
}

// waiting is the caller's context, which Close ends too.
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

// step is what the head does next.
type step uint8

const (
	begin   step = iota // choose one of the others
	tryOnce             // is it free?
	enqueue             // take, confirm or collect the place in the store's queue
	await               // wait for the store's push, or for the next poll
)

// enter goes to the gate of the name.
func (a *acquisition) enter() error {
	c, l := a.lock.how.client, a.lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	g := c.gates[l.name]
	if g == nil {
		if n := len(c.spare); n > 0 {
			g, c.spare = c.spare[n-1], c.spare[:n-1]
		} else {
			g = &gateway{}
		}
		c.gates[l.name] = g
	}
	if err := g.Enter(&a.Waiter); err != nil {
		return err
	}
	a.gate = g
	switch a.Role {
	case gate.Behind:
		a.news = make(chan struct{})
	case gate.Held:
		if h := g.turn.hold; h != nil {
			a.held = h.heldError(c.clock.Now())
		} else if a.held = g.First().Ref.(*acquisition).held; a.held == nil { // the head is new, and knows it from the one before
			a.held = &HeldError{Name: l.name}
		}
	}
	c.active++
	return nil
}

// exit leaves the client. The gate has been left before, and the lease, if any,
// handed over; unless the driver has panicked, after which nothing must be left either
// (P6). It cannot panic once there is a lease: nothing of the driver's is called then.
func (a *acquisition) exit(panicked bool) {
	if a.waiting != nil {
		a.waiting.stop()
	}
	c := a.lock.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if panicked {
		a.leave()
	}
	c.finish(1)
}

// run waits for its turn and then asks the store. It returns a lease, or the
// reasons why there is none.
func (a *acquisition) run(ctx context.Context) (*Lease, []error) {
	c := a.lock.how.client
	if a.news != nil {
		select {
		case <-a.news:
		case <-ctx.Done():
		case <-c.closing.Done():
		}
		// The role decides, not what woke us: the hold may have come with the
		// end of the context, and must not be dropped (P6). So looking at the
		// role and leaving are one step.
		c.mu.Lock()
		role := a.Role
		if role == gate.Behind {
			a.leave()
		}
		c.mu.Unlock()
		switch role {
		case gate.Joined, gate.Passed:
			return a.lease, nil
		case gate.Behind:
			return nil, a.reasons(ctx)
		}
	}
	if a.Role == gate.Held {
		return nil, []error{a.held}
	}
	return a.drive(ctx)
}

// drive is the head's dialogue with the store.
func (a *acquisition) drive(ctx context.Context) (*Lease, []error) {
	c := a.lock.how.client
	for {
		if ctx.Err() != nil || c.closing.Err() != nil {
			return nil, a.giveUp(ctx)
		}
		grant, err := a.ask(ctx)
		if err == nil {
			var lease *Lease
			if lease, err = a.accept(ctx, grant); lease != nil {
				return lease, nil
			}
		}
		if !a.again(ctx, err) {
			return nil, a.giveUp(ctx, err)
		}
	}
}

// begin chooses the first step: whoever knows that the name is held queues at
// once, which saves a round trip. It is called with the client's mutex.
func (a *acquisition) begin(contended bool) {
	c := a.lock.how.client
	a.step = tryOnce
	a.contact = a.gate.Told()
	// A place that was sent is asked for by Enqueue, the idempotent request; a
	// try has no use for it.
	sent := a.gate.Place(rand.Text).Sent
	switch {
	case a.Try && sent:
		c.withdrawPlace(a.lock, a.gate.Renounce())
	case c.queuer != nil && !a.Try && (sent || a.gate.Hot() || a.gate.Told() || contended):
		a.step = enqueue
	}
}

// contended reports whether the driver knows that others want the name. It is called
// without the client's mutex, which no code of others may hold up.
func (c *Client) contended(name string) bool {
	f, ok := c.queuer.(driver.Foreseer)
	return ok && f.Contended(c.opts.Prefix+name)
}

// ask does one step and returns what the store says.
func (a *acquisition) ask(ctx context.Context) (driver.Grant, error) {
	c := a.lock.how.client
	contended := a.step == begin && !a.Try && c.contended(a.lock.name)
	c.mu.Lock()
	if a.step == begin {
		a.begin(contended)
	}
	place := a.gate.Place(rand.Text)
	if err := c.crowdedOut(); err != nil && !place.Sent {
		c.mu.Unlock()
		return driver.Grant{}, err
	}
	a.gate.Sent()
	tokens := 1
	if a.gate.Behind() && a.Shape.Mode == Exclusive && a.Shape.MinHold == 0 && a.Shape.RenewEvery >= 0 {
		tokens = max(1, c.caps.TokenBlock)
	}
	c.mu.Unlock()
	req := a.lock.request(place.Owner, a.Shape)
	req.Tokens = tokens
	var grant driver.Grant
	var err error
	switch {
	case a.step == enqueue:
		grant, err = c.queuer.Enqueue(ctx, req)
	case a.step == await && c.queuer != nil:
		return a.await(ctx, req)
	case a.step == await:
		a.poll(ctx)
		fallthrough
	default:
		grant, err = c.driver.Try(ctx, req)
	}
	if err == nil {
		return grant, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if grant.Handle != nil {
		a.gate.Keep(grant.Handle)
	}
	if errors.Is(err, ErrUncertain) {
		a.gate.Stray()
		c.silence = err
	} else if a.step != enqueue {
		a.gate.Unsent() // the store has certainly not done it: nothing to withdraw
	}
	return grant, err
}

// again says whether to ask once more after err, and prepares the next step.
func (a *acquisition) again(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		// The store's own complaint about the context says nothing new.
		if errors.Is(err, ErrHeld) {
			a.told(err)
		} else if !errors.Is(err, ctx.Err()) {
			a.last = err
		}
		return true // and give up there
	}
	c := a.lock.how.client
	switch {
	case errors.Is(err, ErrHeld):
		a.told(err)
		if a.Try {
			return false
		}
		if c.queuer != nil && a.step != enqueue {
			a.step = enqueue
		} else {
			a.step = await
		}
		a.last = nil
		return true
	case errors.Is(err, ErrMismatch), errors.Is(err, ErrUnsupported), errors.Is(err, ErrClosed):
		return false
	case driver.Gone(err):
		// The store knows that the place under this owner is void: an operator
		// broke the claim, or it ran out. Line up anew.
		a.renounce()
		if a.Try {
			return false
		}
	case !a.contact || a.Try:
		return false
	case errors.Is(err, ErrUncertain) && c.queuer == nil:
		// Asking again under the same owner is for stores with a queue only.
		a.renounce()
	}
	a.contact, a.last = true, err
	if c.queuer != nil {
		a.step = enqueue
	}
	a.rest(ctx)
	return true
}

// told notes that the store says to wait, and tells it to those behind.
func (a *acquisition) told(err error) {
	c := a.lock.how.client
	named := HeldError{}
	if a.held != nil {
		named = *a.held // a bare ErrHeld says nothing new
	}
	if detail := (*HeldError)(nil); errors.As(err, &detail) {
		named = *detail
	}
	named.Name = a.lock.name // the caller's, without the prefix

	c.mu.Lock()
	defer c.mu.Unlock()
	a.held = &named
	first := !a.contact
	a.contact = true
	for _, w := range a.gate.Tell() {
		refused := w.Ref.(*acquisition)
		refused.held = a.held
		close(refused.news)
	}
	if first && !a.Try {
		c.emit(c.opts.Events.Waiting, slog.LevelDebug, "waiting", Event{Name: a.lock.name, Mode: a.Shape.Mode, Err: a.held})
	}
}

// renounce gives the place up and has it withdrawn.
func (a *acquisition) renounce() {
	c := a.lock.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawPlace(a.lock, a.gate.Renounce())
}

// await waits for the store to grant the place, or until it is time to ask
// again, for which it returns ErrHeld.
func (a *acquisition) await(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c := a.lock.how.client
	if a.waiting == nil {
		a.waiting = c.waiting(ctx)
	}
	poll, cancel := context.WithTimeout(a.waiting.ctx, a.untilOpen(jitter(c.caps.PollInterval())))
	defer cancel()
	grant, err := c.queuer.Wait(poll, req)
	if err != nil && poll.Err() != nil {
		err = ErrHeld // time to ask again, or to see that the context has ended
	}
	return grant, err
}

// poll waits until it is time for the next look at a store without a queue. The
// first looks are quick and the later ones slow.
func (a *acquisition) poll(ctx context.Context) {
	a.pause = min(max(2*a.pause, firstPause), a.lock.how.client.caps.PollInterval())
	a.sleep(ctx, a.untilOpen(jitter(a.pause)))
}

// untilOpen shortens a pause to when the name opens by itself, where that is
// known.
func (a *acquisition) untilOpen(d time.Duration) time.Duration {
	if a.held != nil && a.held.ExpiresIn > 0 {
		d = min(d, a.held.ExpiresIn+time.Millisecond)
	}
	return d
}

// firstPause is the first pause between two looks at a store without a queue,
// and after a store's error.
const firstPause = 5 * time.Millisecond

// rest waits a while after a store's error, longer each time.
func (a *acquisition) rest(ctx context.Context) {
	a.pause = min(max(2*a.pause, firstPause), a.lock.how.client.caps.PollInterval())
	a.sleep(ctx, jitter(a.pause))
}

// sleep ends early when the context or the client ends, or when this client
// releases the name.
func (a *acquisition) sleep(ctx context.Context, d time.Duration) {
	c := a.lock.how.client
	c.mu.Lock()
	if a.gate.poke == nil {
		a.gate.poke = make(chan struct{}, 1)
	}
	poke := a.gate.poke
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-poke:
		a.pause = 0
	case <-ctx.Done():
	case <-c.closing.Done():
	}
}

// jitter returns a duration between half of d and d, so that clients that
// started together do not stay together.
func jitter(d time.Duration) time.Duration {
	return d/2 + mathrand.N(d/2+1)
}

// accept turns a grant into a lease. It returns no lease, and why, if the grant
// is of no use.
func (a *acquisition) accept(ctx context.Context, grant driver.Grant) (*Lease, error) {
	c := a.lock.how.client
	// Of a claim that nobody has renewed the store knows no minimum hold (P5).
	claim := a.step == await && c.queuer != nil && a.Shape.MinHold > 0
	for fresh := false; ; fresh = true {
		c.mu.Lock()
		now := c.clock.Now()
		left := grant.Since.Add(grant.Valid - lease.Margin(c.opts.Margin, grant.Valid)).Sub(now)
		switch {
		case c.closed:
			a.undo(grant)
			c.mu.Unlock()
			return nil, ErrClosed
		case left > grant.Valid/3 && !claim || fresh && left > 0:
			return a.take(grant, now), nil // unlocks
		case fresh:
			a.undo(grant)
			c.mu.Unlock()
			return nil, fmt.Errorf("the store's answers take longer than the TTL of %v lasts", grant.TTL)
		}
		c.mu.Unlock()
		// It has been under way for so long that little of it is left, or is a claim:
		// begin the work with a full TTL.
		r := c.renew1(ctx, grant)
		if r.Err != nil {
			if !driver.Gone(r.Err) {
				c.mu.Lock()
				a.undo(grant)
				c.mu.Unlock()
			}
			return nil, r.Err
		}
		grant.Since, grant.Valid = r.Since, r.Valid
	}
}

// undo gives a grant back that is of no use. An undone acquire has no minimum
// hold. It is called with the client's mutex.
func (a *acquisition) undo(grant driver.Grant) {
	grant.MinHold, grant.Stray = 0, a.gate.Renounce().Stray
	a.lock.how.client.withdraw(grant)
}

// take makes the lease and leaves the gate, with those who share the hold. It
// is called with the client's mutex, which it unlocks.
func (a *acquisition) take(grant driver.Grant, now driver.Instant) *Lease {
	c := a.lock.how.client
	grant.Stray = a.gate.Place(rand.Text).Stray
	h := newHold(a.lock, grant, now)
	a.lease = &h.first
	c.beginTurn(a.gate, h, grant, now)
	joined, next := a.gate.Grant()
	for _, w := range joined {
		j := w.Ref.(*acquisition)
		j.lease = h.handle()
		close(j.news)
	}
	c.wakeNext(a.lock.name, a.gate, next)
	c.track(h)
	a.acquired(h)
	c.mu.Unlock()
	return &h.first
}

// acquired tells of a new hold. It is called with the client's mutex.
func (a *acquisition) acquired(h *hold) {
	c := a.lock.how.client
	c.emit(c.opts.Events.Acquired, slog.LevelDebug, "acquired", Event{
		Name: h.name, Mode: a.Shape.Mode, Token: h.token, After: h.taken.Sub(a.start),
	})
}

// giveUp leaves the gate, and returns why.
func (a *acquisition) giveUp(ctx context.Context, errs ...error) []error {
	c := a.lock.how.client
	c.mu.Lock()
	a.leave()
	c.mu.Unlock()
	return a.reasons(ctx, errs...)
}

// leave leaves the gate: the place in the store's queue is passed on or
// withdrawn. It is called with the client's mutex.
func (a *acquisition) leave() {
	c := a.lock.how.client
	if h := a.gate.turn.hold; h != nil {
		a.held = h.heldError(c.clock.Now())
	} else if a.gate.Told() && a.held == nil {
		a.held = &HeldError{Name: a.lock.name} // the head was told, and we stood behind it
	}
	if c.queuer == nil && a.gate.First() == &a.Waiter {
		// Only a store with a queue can be asked again under the same owner.
		c.withdrawPlace(a.lock, a.gate.Renounce())
	}
	next, place := a.gate.Leave(&a.Waiter)
	c.withdrawPlace(a.lock, place)
	c.wakeNext(a.lock.name, a.gate, next)
}

// reasons returns why there is no lease: errs, or else what ended the wait, and
// what the store said before.
func (a *acquisition) reasons(ctx context.Context, errs ...error) []error {
	if len(errs) > 0 && errors.Is(errs[0], ErrHeld) {
		return []error{a.held} // a try: this says it all
	}
	if len(errs) == 0 {
		errs = []error{ErrClosed}
		if err := ended(ctx); err != nil {
			errs[0] = err
		}
	}
	if a.held != nil {
		errs = append(errs, a.held)
	}
	if a.last != nil {
		errs = append(errs, fmt.Errorf("last error of the store: %w", a.last))
	}
	return errs
}

// wakeNext wakes the new head of a gate, or forgets the gate if it is empty.
func (c *Client) wakeNext(name string, g *gateway, next *gate.Waiter) {
	if next != nil {
		if a := next.Ref.(*acquisition); a.news != nil {
			close(a.news)
		}
	}
	if g.Empty() && c.gates[name] == g {
		delete(c.gates, name)
		if len(c.spare) < maxSpare {
			g.poke = nil
			g.Reset()
			c.spare = append(c.spare, g)
		}
	}
}

// maxSpare is how many gates nobody is at are kept, so that an uncontended lock
// does not make one each time.
const maxSpare = 64
