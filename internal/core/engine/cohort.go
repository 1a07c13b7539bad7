package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/due"
)

// cohort is local hand-over: a hold in the store that one caller of the client hands over
// to the next, without asking the store, as in Dice, Marathe, Shavit, "Lock Cohorting"
// (PPoPP 2012). That costs a thousandth of a hand-over through the store. The owner stays
// the same, and each holder has a token of its own, out of the block that the grant
// reserved (P3); the trust deadline is handed over with the hold (P1).
//
// Others wait only a little longer for it (P8): a cohort ends when its block is used up or
// its time is over, and, if others were in the store's queue, when those who were at the
// gate at the grant have had the hold. From then on the callers at the gate go to the store,
// as if the holder were a stranger, and the store is told which token is in use.
type cohort struct {
	hold *Hold // the one that has it; nil: there is no cohort
	left int   // how often it may still be handed over
	over due.Entry
}

// For how long a hold is handed over, counted from the grant. What lasts longer can pay for
// the way through the store.
const (
	CohortAlone     = 10 * time.Millisecond // if nobody else was in the store's queue
	CohortContended = 2 * time.Millisecond  // if others were
)

// beginCohort closes the gate for a new hold that the callers at the gate may get, one
// after the other.
func (e *Engine) beginCohort(g *gate, h *Hold, grant *driver.Grant) {
	lasts, left := CohortAlone, grant.Block-1
	if grant.Contended {
		lasts, left = CohortContended, min(left, g.size)
	}
	if left < 1 || h.token == 0 || !h.settings.mayHandOver() {
		return
	}
	g.closed = true
	g.cohort.hold, g.cohort.left = h, left
	e.cohorts.Set(g, e.now.Add(lasts))
	e.dismissTries(g, h.heldError(e.now))
}

// heldError is what callers are told who only try.
func (h *Hold) heldError(now driver.Instant) *driver.HeldError {
	ends := h.machine.Since().Add(h.valid + h.settings.LockDelay)
	return &driver.HeldError{Name: h.name, Note: h.settings.Note, Token: h.token, ExpiresIn: max(0, ends.Sub(now))}
}

// handOver gives a hold whose callers have all released it to the first at the gate, and
// reports whether it has. It may not if the cohort is over, little time of the lease is
// left, or the first at the gate wants something else.
func (e *Engine) handOver(h *Hold) bool {
	g := e.cohortOf(h)
	if g == nil || g.cohort.left == 0 || e.now >= g.cohort.over.At() || e.closed {
		return false
	}
	c := g.first
	if h.machine.Until().Sub(e.now) <= h.valid/3 || c == nil || !c.settings.sameTerms(h.settings) {
		return false
	}
	g.remove(c)
	grant := e.grant(h)
	grant.Token++
	grant.HandedOver = true
	c.source = Handed
	next := e.newHold(c, &grant)
	next.machine.HandedOver(h.machine.Until(), g.cohort.over.At()) // then the store is told the token
	g.cohort.hold = next
	g.cohort.left--
	e.schedule(next)
	e.tellOf(h, GaveBack, nil)
	e.tellAcquired(c)
	e.wake(c)
	if g.cohort.left == 0 {
		e.endCohort(g) // the next one of this client can wait in the store's queue meanwhile
	}
	return true
}

// cohortOf returns the gate that is closed for the hold, or nil.
func (e *Engine) cohortOf(h *Hold) *gate {
	if g := e.gates[h.name]; g != nil && g.cohort.hold == h {
		return g
	}
	return nil
}

// endCohortOf ends the hold's cohort, if it has one: it cannot be another caller's as it is.
func (e *Engine) endCohortOf(h *Hold) {
	if g := e.cohortOf(h); g != nil {
		e.endCohort(g)
	}
}

// endCohort opens a gate: the callers there go to the store now.
func (e *Engine) endCohort(g *gate) {
	name := g.cohort.hold.name
	g.cohort.hold, g.closed = nil, false
	e.cohorts.Drop(g)
	e.promote(name, g)
}
