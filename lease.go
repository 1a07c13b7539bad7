package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Lease is one hold on a lock, kept alive in the background until it is
// released or lost. Safe for concurrent use.
//
// Whoever holds a lease can be wrong about it: the process may stand still
// between a look at the lease and the act that relied on it. Where that must not
// happen, hand the token to the resource and let it refuse older ones: see
// package fence.
type Lease struct {
	hold *hold
	end  atomic.Pointer[ending] // set once

	// Guarded by the client's mutex.
	audience *audience // nil: nobody yet
	next     *Lease    // of the same hold
	outcome  *outcome  // of Release; nil: nobody has called it
}

// audience is who hears of a lease's end.
type audience struct {
	done     chan struct{} // nil: nobody has asked for it
	contexts *leaseContext
}

// outcome is what the first Release returned, or will.
type outcome struct {
	err     error
	settled chan struct{} // closed when it has; made only for another Release that waits
}

// The outcomes of nearly all releases, which cost none of their own.
var (
	settling = &outcome{} // it has not returned yet, and nobody waits for it
	fine     = &outcome{} // nothing is wrong
)

// ending is why a lease is over.
type ending struct{ err error }

// endedChannel is the channel of leases that nobody asked for one before they ended.
var endedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

var released = &ending{ErrReleased}

// finish ends the lease. It returns the cancellation of its contexts, to be
// done without the mutex, and does nothing the second time.
func (le *Lease) finish(err error) func() {
	e := released
	if err != ErrReleased {
		e = &ending{err}
	}
	if !le.end.CompareAndSwap(nil, e) {
		return func() {}
	}
	if le.audience == nil {
		return func() {}
	}
	if le.audience.done != nil {
		close(le.audience.done)
	}
	contexts := le.audience.contexts
	le.audience.contexts = nil
	return func() {
		for c := contexts; c != nil; c = c.next {
			c.cancel(err)
		}
	}
}

// Name returns the lock's name, without the client's prefix.
func (le *Lease) Name() string { return le.hold.name }

// Mode returns how the name is held.
func (le *Lease) Mode() Mode {
	c := le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.hold.seen()
}

// Token returns the fencing token: greater than those of the exclusive holds on
// the name before it, and for an exclusive lease than those of the shared ones
// too, as far as the store's Guarantees go (P3). It stays the same for the whole
// life of the lease, but for a downgrade. 0: the store gives none.
func (le *Lease) Token() Token {
	c := le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.hold.token
}

// Sequencer returns name, mode and token as one opaque line of printable ASCII,
// to be handed to whoever guards the resource: see Client.CheckSequencer and
// package fence.
func (le *Lease) Sequencer() string {
	c := le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return driver.Sequencer{
		Name: c.opts.Prefix + le.hold.name, Mode: le.hold.seen(), Token: le.hold.token,
	}.String()
}

// Grant returns the hold as its driver knows it, for packages that belong to one
// store, such as the guards for data beside the locks. Since and Valid tell
// nothing that Err does not.
func (le *Lease) Grant() driver.Grant {
	c := le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	return le.hold.grant()
}

// Err returns nil while the lease can be trusted, and then for good a
// *LostError or ErrReleased. It reads the clock: it is right at every instant,
// whatever timers and the network do (P2).
func (le *Lease) Err() error {
	for {
		if e := le.end.Load(); e != nil {
			return e.err
		}
		if le.hold.how.client.look(le.hold) {
			return nil
		}
	}
}

// Done returns a channel that is closed when Err is not nil any more: at the
// loss, as soon as the process runs, or at the release.
func (le *Lease) Done() <-chan struct{} {
	c := le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if le.end.Load() != nil && (le.audience == nil || le.audience.done == nil) {
		return endedChannel
	}
	a := le.hearers()
	if a.done == nil {
		a.done = make(chan struct{})
	}
	return a.done
}

// hearers returns the audience, made if there is none. It is called with the client's
// mutex.
func (le *Lease) hearers() *audience {
	if le.audience == nil {
		le.audience = &audience{}
	}
	return le.audience
}

// ValidUntil returns the trust deadline as it stands, by the present wall
// clock: for people and for estimates. Err decides.
func (le *Lease) ValidUntil() time.Time {
	return le.hold.how.client.wall(driver.Instant(le.hold.until.Load()))
}

// Renew renews the lease now, for a holder that wants to know before it begins
// something, or that has switched the renewal off. It returns nil when the TTL
// has started again; what Err returns, if the lease is over; ErrMaxHold, if it goes on
// but may not become longer (Options.MaxHold); else the store's error, with the lease in
// doubt.
func (le *Lease) Renew(ctx context.Context) error {
	if ctx == nil {
		return errNilContext("renew")
	}
	if err := le.Err(); err != nil {
		return failed("renew", le.hold.name, err)
	}
	h, c := le.hold, le.hold.how.client
	if err := c.start(); err != nil {
		return failed("renew", h.name, err)
	}
	defer c.stop()
	c.mu.Lock()
	grant, final := h.grant(), c.expire(h, c.clock.Now())
	c.mu.Unlock()
	if final {
		return le.renewError(ErrMaxHold)
	}
	r := c.renew1(ctx, grant)
	c.mu.Lock()
	cancels := []func(){c.renewed(h, r)}
	if driver.Gone(r.Err) {
		cancels = append(cancels, c.gone(map[string]error{h.owner: r.Err})...)
	}
	if h.machine.Final() {
		r.Err = ErrMaxHold // that came first
	}
	c.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	return le.renewError(r.Err)
}

// renewError is what Renew returns: why the lease is over, or else err.
func (le *Lease) renewError(err error) error {
	if over := le.Err(); over != nil {
		err = over
	}
	if err != nil {
		return failed("renew", le.hold.name, err)
	}
	return nil
}

// Reenter returns one more lease on the same hold. The hold is released when
// the last of its leases is; a loss ends them all. It costs no round trip, and
// the store shows one hold.
func (le *Lease) Reenter() (*Lease, error) {
	again, err := le.share(Shared)
	if err != nil {
		return nil, failed("reenter", le.hold.name, err)
	}
	return again, nil
}

// share returns one more lease on the hold. It is ErrDeadlock if mode is
// Exclusive and the hold is not.
func (le *Lease) share(mode Mode) (*Lease, error) {
	if err := le.Err(); err != nil {
		return nil, err
	}
	h, c := le.hold, le.hold.how.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := le.end.Load(); e != nil {
		return nil, e.err
	}
	if mode == Exclusive && h.seen() != Exclusive {
		return nil, ErrDeadlock
	}
	return h.handle(), nil
}

// Downgrade turns an exclusive hold into a shared one without a gap: nobody can
// hold the name exclusively in between. It is refused while the hold has other
// leases, which count on being alone. After an error that is not a loss the
// lease goes on, as a shared one, because the store may have done it; Downgrade
// may be tried again.
func (le *Lease) Downgrade(ctx context.Context) error {
	if ctx == nil {
		return errNilContext("downgrade")
	}
	h, c := le.hold, le.hold.how.client
	d, ok := driver.As[driver.Downgrader](c.driver, driver.OpDowngrade)
	if !ok || !c.caps.Shared {
		return failed("downgrade", h.name, ErrUnsupported)
	}
	if err := le.Err(); err != nil {
		return failed("downgrade", h.name, err)
	}
	if err := c.start(); err != nil {
		return failed("downgrade", h.name, err)
	}
	defer c.stop()
	if h.unsaid() {
		// What others must be above is this lease's token (P3).
		if err := le.Renew(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	grant, mode, alone := h.grant(), h.mode, h.users == 1 && le.end.Load() == nil
	if mode == Exclusive && alone {
		h.ensureExtras().asked = true
		c.keep(h)
	}
	c.mu.Unlock()
	switch {
	case mode == Shared:
		return nil
	case mode != Exclusive:
		return failed("downgrade", h.name, fmt.Errorf("a hold on %s cannot be downgraded: %w", mode, ErrUnsupported))
	case !alone:
		return failed("downgrade", h.name, errors.New("the hold has other leases, which count on its being exclusive: release them first"))
	}
	g, err := d.Downgrade(ctx, grant)
	c.mu.Lock()
	if err == nil && !h.over {
		h.mode, h.token, h.data = g.Mode, g.Token, g.Handle
	}
	// Its answer says of the hold what a renewal's would.
	cancel := c.renewed(h, driver.Renewal{Since: g.Since, Valid: g.Valid, Err: err})
	c.mu.Unlock()
	cancel()
	if over := le.Err(); over != nil {
		err = over
	}
	if err != nil {
		return failed("downgrade", h.name, err)
	}
	return nil
}
