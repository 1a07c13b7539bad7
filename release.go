package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
	"github.com/holdfastlock/holdfast/internal/gate"
)

// releaseWithin bounds how long Release and Close wait for the store.
const releaseWithin = 5 * time.Second

// Release gives the lease back; the name is free once the last lease of the
// hold is released, or, with Options.MinHold, when that time is over too: see ReleaseNow.
//
// It takes no context, because it must work in a defer after the caller's has
// ended, and waits for the store for at most 5 s or as long as the lease would
// have been valid. If the store has not confirmed it by then the error is
// ErrUncertain, and the release goes on in the background. If the lease was lost
// before, the error is the *LostError: what was done under it may have run
// unprotected. A second call does nothing and returns what the first returned,
// after waiting for it.
func (le *Lease) Release() error { return le.release(false) }

// ReleaseNow is Release without the minimum hold (Options.MinHold): for a lease under
// which nothing was done, because the work could not begin, so that another may do it at
// once. Where several leases share a hold, the minimum holds unless all of them are
// released by ReleaseNow. A second call, of either, does nothing.
func (le *Lease) ReleaseNow() error { return le.release(true) }

// release is Release, or, with unused, ReleaseNow.
func (le *Lease) release(unused bool) (err error) {
	h, c := le.hold, le.hold.how.client
	c.mu.Lock()
	if le.outcome != nil {
		if le.outcome == settling {
			le.outcome = &outcome{settled: make(chan struct{})}
		}
		first := le.outcome
		c.mu.Unlock()
		if first.settled != nil {
			<-first.settled
		}
		return first.err
	}
	le.outcome = fine
	h.users--
	if !unused && h.how.MinHold > 0 {
		h.ensureExtras().used = true
	}
	now := c.clock.Now()
	if !h.over && !h.machine.Trusted(now) {
		defer c.lose(h, nil)()
	}
	if e := le.end.Load(); e != nil {
		defer c.mu.Unlock()
		return le.late(e.err)
	}
	cancel := le.finish(ErrReleased)
	h.forget(le)
	grant, last := h.lastGrant(), h.users == 0
	var within context.Context
	var free context.CancelFunc
	var turn *gateway
	event := h.event(now)
	if last {
		h.machine.Release(now)
		c.untrack(h)
		turn = c.turnOf(h)
		c.active++
		le.outcome = settling
		within, free = c.within(min(h.machine.Until().Sub(now), releaseWithin), now)
	}
	c.mu.Unlock()
	cancel() // the work ends before another can begin
	if !last {
		return nil
	}
	passed := turn != nil && c.passOn(turn, h, event)
	if !passed {
		event.Err = errPanicked
	}
	defer func() {
		free()
		err = le.settle(turn, grant, event, passed)
	}()
	if !passed {
		event.Err = c.giveBack(within, grant)
	}
	return nil // settle says
}

// errPanicked is what others are told of a release in which the driver has panicked.
var errPanicked = errors.New("the driver panicked")

// settle ends a release, of which event says how it went, and returns its outcome. If the
// hold was passed on, that has been told.
func (le *Lease) settle(turn *gateway, grant driver.Grant, event Event, passed bool) error {
	h, c := le.hold, le.hold.how.client
	c.mu.Lock()
	if turn != nil {
		c.keep(h) // now that the name is free, or soon will be
	}
	switch {
	case driver.Gone(event.Err):
		event.Err = &LostError{Name: h.name, Token: h.token, Reason: event.Err}
	case event.Err != nil:
		c.withdraw(grant)
		event.Err = failed("release", h.name, ErrUncertain, event.Err)
	}
	switch said := le.outcome; {
	case said != settling: // somebody waits for it
		said.err = event.Err
		close(said.settled)
	case event.Err != nil:
		le.outcome = &outcome{err: event.Err}
	default:
		le.outcome = fine
	}
	if !passed {
		c.gaveBack(event)
	}
	c.finish(1)
	c.mu.Unlock()
	return event.Err
}

// gaveBack tells how a release went. It is called with the client's mutex.
func (c *Client) gaveBack(event Event) {
	switch {
	case event.Err == nil:
		c.poke(event.Name)
		c.emit(c.opts.Events.Released, slog.LevelDebug, "released", event)
	case errors.Is(event.Err, ErrLost):
		c.emit(c.opts.Events.Lost, slog.LevelWarn, "lost", event)
	default:
		c.emit(c.opts.Events.Released, slog.LevelWarn, "released", event)
	}
}

// late is the outcome of releasing a lease that is over. What was lost by the
// clock only may still stand in the store: it is withdrawn as soon as the last of
// those who worked under it says that it has stopped.
func (le *Lease) late(end error) error {
	h := le.hold
	lost, ok := end.(*LostError)
	if !ok {
		return nil // released by Close
	}
	if h.users == 0 && !driver.Gone(lost.Reason) {
		h.how.client.withdraw(h.lastGrant())
	}
	le.outcome = &outcome{err: lost}
	return lost
}

// lastGrant is the grant to release: one that nobody has used has no minimum hold.
func (h *hold) lastGrant() driver.Grant {
	grant := h.grant()
	if !h.extras().used {
		grant.MinHold = 0
	}
	return grant
}

// forget takes a released lease out of the hold's list: at once if it is the first, else
// with others, once at least half of the list is over. So ten thousand readers that share
// a hold are forgotten in twice as many steps.
func (h *hold) forget(le *Lease) {
	if h.leases == le {
		h.leases, le.next = le.next, nil
		return
	}
	e := h.ensureExtras()
	if e.ended++; e.ended < h.users {
		return
	}
	e.ended = 0
	for at := &h.leases; *at != nil; {
		if le := *at; le.end.Load() != nil {
			*at, le.next = le.next, nil
		} else {
			at = &le.next
		}
	}
}

// giveBack releases a hold in the store.
func (c *Client) giveBack(ctx context.Context, grant driver.Grant) error {
	err := c.release1(ctx, grant)
	for pause := firstPause; err != nil && !driver.Gone(err) && rest(ctx, jitter(pause)); pause *= 2 {
		err = c.release1(ctx, grant)
		if errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrBroken) {
			err = nil // an attempt before went through, and its answer was lost
		}
	}
	return err
}

// release1 releases one grant.
func (c *Client) release1(ctx context.Context, g driver.Grant) error {
	errs := c.driver.Release(ctx, []driver.Grant{g})
	if len(errs) != 1 {
		return fmt.Errorf("the driver returned %d results for one release", len(errs))
	}
	return errs[0]
}

// bound is a context that releases share.
type bound struct {
	ctx  context.Context
	made driver.Instant
	free context.CancelFunc
}

// within returns a context that ends after d at the latest. Releases that
// begin within a moment of one another share one, because a context of its own
// would cost each more than all the rest of it. It is called with the client's
// mutex.
func (c *Client) within(d time.Duration, now driver.Instant) (context.Context, context.CancelFunc) {
	const moment = releaseWithin / 50
	if d < releaseWithin {
		return context.WithTimeout(context.Background(), d)
	}
	if c.bound.ctx == nil || now.Sub(c.bound.made) > moment {
		// The one before goes on for those who use it, and ends by itself.
		ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
		c.bound = bound{ctx, now, cancel}
	}
	return c.bound.ctx, func() {}
}

// rest waits for d; it returns false if the context ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// poke tells this client's own waiter for a name that it is free, which a store
// without a queue does not. It is called with the client's mutex.
func (c *Client) poke(name string) {
	if c.queuer != nil {
		return
	}
	if g := c.gates[name]; g != nil && g.poke != nil {
		select {
		case g.poke <- struct{}{}:
		default:
		}
	}
}

// withdrawal is something that the store is to forget: an acquire that nobody
// waits for any more, or a release that it has not confirmed. It is repeated in
// the background until the store confirms it, or has forgotten it by itself
// because its TTL is over (P6).
type withdrawal struct {
	grant driver.Grant
	until driver.Instant
	pause time.Duration
	entry batch.Entry
}

// slowestWithdrawal is the longest pause between two attempts.
const slowestWithdrawal = time.Second

// maxWithdrawals is how many withdrawals may await a store that does not answer. With
// as many under way an acquire that the store knows nothing of fails, rather than leave
// one more behind.
const maxWithdrawals = 1 << 14

// withdraw begins a withdrawal.
func (c *Client) withdraw(g driver.Grant) {
	now := c.clock.Now()
	w := &withdrawal{grant: g, until: now.Add(g.TTL), pause: firstPause}
	c.withdrawals++
	c.undoing.Set(w, now)
	c.rearm()
}

// withdrawPlace withdraws a gate's place, if the store may know it. An undone
// acquire has no minimum hold.
func (c *Client) withdrawPlace(l *Lock, p gate.Place) {
	if p.Owner == "" || !p.Sent {
		return
	}
	how := p.Shape
	how.MinHold = 0
	c.withdraw(driver.Grant{Request: l.request(p.Owner, how), Stray: p.Stray, Handle: p.Data})
}

// crowdedOut returns why no acquire may begin that might have to be withdrawn, or nil:
// too many withdrawals await a store that does not answer. It is called with the client's
// mutex.
func (c *Client) crowdedOut() error {
	if c.withdrawals < maxWithdrawals || c.silence == nil {
		return nil
	}
	return fmt.Errorf("%d acquires and releases await the store's confirmation: %w", c.withdrawals, certain{c.silence})
}

// certain is an error of the store without what it said of another operation: that its
// outcome is uncertain, or that the time was over that it had.
type certain struct{ err error }

func (e certain) Error() string { return e.err.Error() }

func (e certain) Is(target error) bool {
	return target != ErrUncertain && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e certain) As(target any) bool { return errors.As(e.err, target) }

// undo makes one attempt at a batch of withdrawals.
func (c *Client) undo(b batch.Batch[*withdrawal]) {
	grants := make([]driver.Grant, len(b.Items))
	for i, w := range b.Items {
		grants[i] = w.grant
	}
	began := c.clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), b.Within)
	errs := c.releaseAll(ctx, grants)
	ranOut := ctx.Err() != nil
	cancel()

	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	through := 0
	for i, w := range b.Items {
		err := errs[i]
		if err == nil || driver.Gone(err) {
			through++
			c.silence = nil
			c.withdrawals--
			continue
		}
		c.silence = err
		if now >= w.until {
			c.withdrawals--
			continue
		}
		c.undoing.Set(w, now.Add(jitter(w.pause)))
		w.pause = min(2*w.pause, slowestWithdrawal)
	}
	ranOut = ranOut && through < len(b.Items)
	c.undoing.Done(b, now, batch.Result{Through: through, RanOut: ranOut, Took: now.Sub(began)})
	c.rearm()
	c.finish(1)
}

// Close ends the client: waiting acquires return ErrClosed, leases are ended
// (ErrReleased) and released in batches, and the driver is closed. It takes at
// most about 5 s; if the store has not confirmed every release by then, the
// error is ErrUncertain, and what is left ends with its TTL. Last it waits for
// hooks and the Logger to be told of all that has happened, for at most 1 s. A second
// call waits for the first, for at most 5 s, and returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		// Not for ever: it may come from a hook that the first waits for.
		ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
		defer cancel()
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		return nil
	}
	c.closed = true
	defer close(c.done)
	var cancels []func()
	var held []driver.Grant
	now := c.clock.Now()
	for h, _, ok := c.deadlines.First(); ok; h, _, ok = c.deadlines.First() {
		grant, cancel, ok := c.drop(h, now)
		if cancels = append(cancels, cancel); ok {
			held = append(held, grant)
		}
	}
	c.mu.Unlock()
	for _, cancel := range cancels {
		cancel() // the work ends before the names are free
	}
	c.close(ErrClosed)

	c.mu.Lock()
	for _, g := range held {
		c.withdraw(g)
	}
	quiet := make(chan struct{})
	c.quiet = quiet
	c.finish(0)
	c.mu.Unlock()
	var err error
	timer := time.NewTimer(releaseWithin)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
		c.mu.Lock()
		if c.quiet != nil {
			err = fmt.Errorf("holdfast: close: %w: %d operations under way, %d releases unconfirmed", ErrUncertain, c.active, c.undoing.Len())
			c.quiet = nil
		}
		c.mu.Unlock()
	}
	c.alarm.Close()
	c.mu.Lock()
	if c.bound.free != nil {
		c.bound.free()
	}
	c.mu.Unlock()
	if closeErr := c.driver.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("holdfast: close: %w", closeErr))
	}
	hooks := time.NewTimer(hooksWithin)
	defer hooks.Stop()
	select {
	case <-c.events.drained():
	case <-hooks.C:
	}
	return err
}
