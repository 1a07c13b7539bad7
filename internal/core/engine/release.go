package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// ReleaseWithin is the longest that a release waits for the store.
const ReleaseWithin = 5 * time.Second

// releaseState is how far a caller's release has come.
type releaseState uint8

const (
	notReleased releaseState = iota
	releasing                // a call is under way
	released                 // Caller.err is what it returned
)

// released takes in that a caller gives its lease back. Unused says that nothing was done
// under it, so that it has no minimum hold.
//
// The work under the lease ends (Stop) before another caller or the store may get the name
// (Stopped).
func (e *Engine) released(c *Caller, unused bool) Action {
	switch c.release {
	case releasing:
		return Action{Do: AwaitRelease}
	case released:
		return Action{Do: Done, Err: c.err}
	}
	h := c.hold
	h.sharers--
	if !unused && h.settings.MinHold > 0 {
		h.ensureExtras().used = true
	}
	if !h.over && !h.machine.Trusted(e.now) {
		e.lose(h, nil)
	}
	if c.stage == ended {
		return e.releasedLate(c)
	}
	h.forget(c)
	e.end(c, ErrReleased)
	if h.sharers > 0 {
		c.release, c.err = released, nil
		return Action{Do: Done}
	}
	c.release, c.err = releasing, nil
	h.machine.Release(e.now)
	e.unschedule(h)
	return Action{Do: Stop}
}

// releasedLate is the release of a lease that is over. A hold that is lost by the clock only, or
// by news (lossesTold), may still stand in the store: it is withdrawn when the last of its callers
// says that it has stopped.
func (e *Engine) releasedLate(c *Caller) Action {
	c.release = released
	if c.err == ErrReleased { // by Close
		c.err = nil
		return Action{Do: Done}
	}
	if h := c.hold; h.sharers == 0 && (!driver.Gone(c.err) || h.extras().hearsay) {
		e.withdraw(e.lastGrant(h))
	}
	return Action{Do: Done, Err: c.err}
}

// lastGrant is the grant to release. A hold that nobody has used has no minimum.
func (e *Engine) lastGrant(h *Hold) driver.Grant {
	grant := e.grant(h)
	if !h.extras().used {
		grant.MinHold = 0
	}
	return grant
}

// stopped gives the hold of a caller whose work has ended to the next in the client, or to
// the store.
func (e *Engine) stopped(c *Caller) Action {
	h := c.hold
	if e.handOver(h) {
		c.release = released
		return Action{Do: Done}
	}
	within := min(h.machine.Until().Sub(e.now), ReleaseWithin)
	return Action{Do: GiveBack, Grant: e.lastGrant(h), For: within}
}

// givenBack takes in the store's answer to a release. If the store has not confirmed it,
// that goes on in the background.
func (e *Engine) givenBack(c *Caller, err error) Action {
	h := c.hold
	e.endCohortOf(h) // now that the name is free, or soon will be
	news := GaveBack
	switch {
	case err == nil:
		e.wakePoller(h.name)
	case driver.Gone(err):
		news, err = Lost, e.LostError(h.name, h.token, err)
	default:
		e.withdraw(e.lastGrant(h))
		err = e.UncertainRelease(h.name, err)
	}
	e.tellOf(h, news, err)
	c.release, c.err = released, err
	return Action{Do: Done, Err: err}
}

// wakePoller tells the client's own head that the name is free, which a store without a
// queue does not.
func (e *Engine) wakePoller(name string) {
	if g := e.gates[name]; g != nil && !e.Queue && g.first != nil && g.first.stage == head {
		e.wake(g.first)
	}
}

// forget takes a caller whose lease is over out of the hold's list: at once if it is the
// first, else with others, once at least half of the list is over. So ten thousand readers
// that share a hold are forgotten in twice as many steps.
func (h *Hold) forget(c *Caller) {
	if h.callers == c {
		h.callers, c.next = c.next, nil
		return
	}
	x := h.ensureExtras()
	if x.ended++; x.ended < h.sharers {
		return
	}
	x.ended = 0
	for at := &h.callers; *at != nil; {
		if other := *at; other == c || other.stage == ended {
			*at, other.next = other.next, nil
		} else {
			at = &other.next
		}
	}
}
