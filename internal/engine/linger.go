package engine

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// LingerFor is for how long a place stays in the store's queue after the last caller at the
// gate has given up. Suppose 64 clients each wait for a name for 10 ms at most, again and
// again, and a change of owner takes 1 ms. If each withdrew its place and took another, all
// would be served rarely or never, and the store would do nothing else. So the next caller
// inherits the place, and with it what the client has waited so far (P8).
//
// A grant that comes meanwhile has nobody to use it until the time is over: it is as short as
// a cohort's. So places linger only where callers give up soon, and again and again.
const LingerFor = 10 * time.Millisecond

// Impatient is how soon those give up whose places linger, and AgainWithin how long before
// another must have done so at the name.
const (
	Impatient   = 20 * time.Millisecond
	AgainWithin = 200 * time.Millisecond
)

// maxImpatient bounds how many names are remembered.
const maxImpatient = 256

func lingerEnd(g *gate) *due.Entry { return &g.lingers }

// lingers reports whether the place is kept when c, the last caller, has given up, and notes
// that it has. A store that is busy may answer long after a caller's patience is over: what counts
// is for how long the caller wanted to wait.
func (e *Engine) lingers(g *gate, c *Caller) bool {
	soon := e.now.Sub(c.entered) <= Impatient || c.patience > 0 && c.patience <= Impatient
	if !e.Queue || e.closed || c.try || g.first != nil || !soon {
		return false
	}
	again := e.gaveUpLately(g.name)
	if len(e.impatient) >= maxImpatient {
		clear(e.impatient)
	}
	e.impatient[g.name] = e.now
	return again && g.place.sent
}

// gaveUpLately reports whether a caller has given up soon at the name, not long ago.
func (e *Engine) gaveUpLately(name string) bool {
	at, ok := e.impatient[name]
	return ok && e.now.Sub(at) <= AgainWithin
}

// adopt makes a place that lingers the one of a new caller, if that can use it. Else it is
// withdrawn.
func (e *Engine) adopt(g *gate, c *Caller) {
	if !e.lingering.Has(g) {
		return
	}
	e.lingering.Drop(g)
	if c.try || c.settings.Terms != *g.place.terms {
		e.withdrawPlace(c.name, g.renounce())
	}
}

// endLingering withdraws the places whose time is over then.
func (e *Engine) endLingering(then driver.Instant) {
	for g, at, ok := e.lingering.First(); ok && at <= then; g, at, ok = e.lingering.First() {
		e.lingering.Drop(g)
		e.withdrawPlace(g.name, g.renounce())
		e.tidy(g.name, g)
	}
}

// queuedLately reports whether the store has confirmed the place so short a time ago that a
// new head can wait at once.
func (e *Engine) queuedLately(g *gate) bool {
	p := &g.place
	return p.sent && !p.stray && !p.late && p.confirmed != 0 && e.now < p.confirmed.Add(e.Poll/2)
}

// untilConfirm returns how long the head waits before it confirms the place again.
func (e *Engine) untilConfirm(g *gate) time.Duration {
	every := e.Poll
	if held := g.talk.held; held != nil {
		every = driver.Caps{Poll: e.Poll}.ConfirmEvery(held.Ahead)
	}
	every = e.Jitter(every)
	if at := g.place.confirmed; at != 0 {
		return max(at.Add(every).Sub(e.now), 0)
	}
	return every
}

// outlived takes in that the head gives up while it asks for a place, or awaits the store.
// Suppose callers give up after 3 ms and the store answers after 4. If each request ended with
// its caller, none would ever be answered. So it goes on, and whoever is the head then gets
// the answer; until it is there a new head sends no other.
func (e *Engine) outlived(c *Caller) Action {
	p := &c.gate.place
	p.late, p.lateStep, p.lateOf = true, c.gate.talk.step, c
	return e.giveUp(c, nil)
}

// lateAnswered takes in the answer to a request that has outlived its caller. If the place was
// withdrawn meanwhile, the withdrawal has told the store that a request may be under way.
func (e *Engine) lateAnswered(name string, grant driver.Grant, err error) {
	g := e.gates[name]
	if g == nil || !g.place.late || g.place.owner != grant.Owner {
		return
	}
	p := &g.place
	awaited := p.lateStep == await
	p.late, p.lateOf = false, nil
	if grant.Handle != nil {
		p.handle = grant.Handle
	}
	held := (*driver.HeldError)(nil)
	switch {
	case err == nil:
		p.granted = &grant
	case errors.Is(err, driver.ErrUncertain):
		p.stray, e.silence = true, err
	case awaited:
		p.confirmed = 0 // ask again
	case errors.As(err, &held):
		known := *held
		known.Name = name
		p.confirmed, p.held = e.now, &known
	}
	if g.first != nil {
		e.wake(g.first)
	}
}
