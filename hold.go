package holdfast

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
	"github.com/holdfastlock/holdfast/internal/due"
	"github.com/holdfastlock/holdfast/internal/lease"
)

// hold is one hold in the store, with the leases that share it. What changes is
// guarded by the client's mutex, but for until. Ten thousand may be held: each word
// counts (P9).
type hold struct {
	Lock    // a copy: the caller's need not live as long
	owner   string
	token   Token
	data    any // the driver's Grant.Handle
	valid   time.Duration
	taken   driver.Instant
	machine lease.Machine
	until   atomic.Int64 // the machine's trust deadline, to be read without the mutex
	users   int32        // leases that nobody has called Release of
	mode    Mode         // the lock's, until a downgrade
	over    bool         // lost or released, and out of the queues
	stray   bool         // Grant.Stray
	passed  bool         // Grant.Passed
	extra   *extras      // nil: none

	deadline due.Entry
	renewal  batch.Entry
	leases   *Lease // linked: those not over, and some that are
	first    Lease
}

// extras is what most holds never have.
type extras struct {
	trouble error   // the last failed renewal
	note    *string // set by SetNote; nil: the lock's
	asked   bool    // a downgrade has been sent: others may share the name by now (P1)
	used    bool    // MinHold counts: a lease has been released, by Release
	ended   int32   // leases in the list that are over
}

// extras returns the hold's, to be read.
func (h *hold) extras() extras {
	if h.extra == nil {
		return extras{}
	}
	return *h.extra
}

// ensureExtras returns the hold's, to be changed.
func (h *hold) ensureExtras() *extras {
	if h.extra == nil {
		h.extra = &extras{}
	}
	return h.extra
}

func newHold(l *Lock, g driver.Grant, now driver.Instant) *hold {
	h := &hold{
		Lock: *l, owner: g.Owner, token: g.Token, data: g.Handle, mode: g.Mode, stray: g.Stray, passed: g.Passed,
		valid: g.Valid, taken: now,
		machine: lease.Start(now, g.Since, g.Valid, &l.how.pace),
	}
	h.first.hold, h.leases, h.users = h, &h.first, 1
	return h
}

// handle adds a lease.
func (h *hold) handle() *Lease {
	le := &Lease{hold: h, next: h.leases}
	h.leases = le
	h.users++
	return le
}

// seen is the mode that users may count on.
func (h *hold) seen() Mode {
	if h.extras().asked {
		return Shared
	}
	return h.mode
}

// request is what the store knows of the hold.
func (h *hold) request() driver.Request {
	how := h.how.Shape
	how.Mode = h.mode
	if note := h.extras().note; note != nil {
		how.Note = *note
	}
	return h.Lock.request(h.owner, how)
}

// grant is the hold as the driver gave it.
func (h *hold) grant() driver.Grant {
	return driver.Grant{Request: h.request(), Token: h.token, Since: h.machine.Since(), Valid: h.valid, Stray: h.stray, Passed: h.passed, Handle: h.data}
}

// track puts a hold into the queues, or moves it to where it belongs now.
func (c *Client) track(h *hold) {
	h.until.Store(int64(h.machine.Until()))
	next := h.machine.Until()
	if at, ok := h.renewedUntil(); ok {
		next = min(next, at)
	}
	c.deadlines.Set(h, next)
	if at, ok := h.machine.RenewAt(); ok {
		c.renewals.Set(h, at)
	} else {
		c.renewals.Drop(h)
	}
	c.rearm()
}

// untrack takes a hold that is over out of the queues.
func (c *Client) untrack(h *hold) {
	h.over = true
	c.deadlines.Drop(h)
	c.renewals.Drop(h)
}

// bury is untrack for a hold that is not passed on.
func (c *Client) bury(h *hold) {
	c.untrack(h)
	c.keep(h)
}

// renewedUntil returns when renewals of the hold are to end (Options.MaxHold), if they
// are and have not.
func (h *hold) renewedUntil() (driver.Instant, bool) {
	return h.taken.Add(h.how.maxHold), h.how.maxHold > 0 && !h.machine.Final()
}

// expire ends the renewals of a hold once its MaxHold is over, and reports whether they
// have ended. The clock decides, not whether a timer has fired. It is called with the
// client's mutex.
func (c *Client) expire(h *hold, now driver.Instant) bool {
	if at, ok := h.renewedUntil(); ok && now >= at && !h.over && h.machine.Trusted(now) {
		h.machine.Finish()
		c.track(h)
		event := h.event(now)
		event.Until = c.wall(h.machine.Until())
		c.emit(c.opts.Events.Expiring, slog.LevelWarn, "expiring", event)
	}
	return h.machine.Final()
}

// drop ends a hold that is given back in the background: it returns the grant
// to withdraw, and the cancellation of contexts, to be done before, once the mutex is
// free. Ok is false if the hold is lost instead.
func (c *Client) drop(h *hold, now driver.Instant) (grant driver.Grant, cancel func(), ok bool) {
	if !h.machine.Release(now) {
		return grant, c.lose(h, nil), false
	}
	c.bury(h)
	c.emit(c.opts.Events.Released, slog.LevelDebug, "released", h.event(now))
	return h.grant(), h.end(ErrReleased), true
}

// event is what is told of the hold's state and end.
func (h *hold) event(now driver.Instant) Event {
	return Event{Name: h.name, Mode: h.seen(), Token: h.token, After: now.Sub(h.taken)}
}

// lose ends a hold that the machine has found lost. It returns the cancellation of
// contexts, to be done once the mutex is free.
func (c *Client) lose(h *hold, reason error) (cancel func()) {
	if h.over {
		return func() {}
	}
	c.bury(h)
	switch {
	case reason != nil:
	case h.machine.Final():
		reason = ErrMaxHold
	default:
		reason = errNotRenewed
		if trouble := h.extras().trouble; trouble != nil {
			reason = fmt.Errorf("not renewed in time: %w", trouble)
		}
	}
	lost := &LostError{Name: h.name, Token: h.token, Reason: reason}
	event := h.event(c.clock.Now())
	event.Err = lost
	c.emit(c.opts.Events.Lost, slog.LevelWarn, "lost", event)
	return h.end(lost)
}

// end ends every lease of the hold, and returns the cancellation of their
// contexts.
func (h *hold) end(err error) func() {
	var cancels []func()
	for le := h.leases; le != nil; le = le.next {
		cancels = append(cancels, le.finish(err))
	}
	h.leases = nil
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// look brings a hold up to date with the clock, and reports whether it can be
// trusted: the deadline counts, not whether a timer has fired (P2).
func (c *Client) look(h *hold) bool {
	now := c.clock.Now()
	if int64(now) < h.until.Load() {
		return true
	}
	c.mu.Lock()
	trusted := h.machine.Trusted(now)
	after := func() {}
	if !trusted {
		after = c.lose(h, nil)
	}
	c.mu.Unlock()
	after()
	return trusted
}
