package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/batch"
)

// renewWithin bounds one batch of renewals. A batch that hangs leaves room for another
// attempt before any deadline of the holds in it: it also has at most half of the time that
// is left to each of them.
const renewWithin = 5 * time.Second

// renewalRules are how renewals share batches.
var renewalRules = batch.Rules[*Hold]{
	Entry:   func(h *Hold) *batch.Entry { return &h.renewal },
	Slack:   func(h *Hold) time.Duration { return max(0, min(h.settings.Pace.Every, h.valid/3)) / 8 },
	Left:    func(h *Hold, now driver.Instant) time.Duration { return h.machine.Until().Sub(now) },
	Longest: renewWithin,
	Most:    1000,
}

// sendRenewals sends off a batch.
func (e *Engine) sendRenewals(renewals batch.Batch[*Hold]) {
	b := &Batch{renewals: renewals, Within: renewals.Within}
	for _, h := range renewals.Items {
		if !h.over && h.machine.Send(e.now) {
			b.holds, b.Grants = append(b.holds, h), append(b.Grants, e.grant(h))
		}
	}
	if len(b.Grants) == 0 {
		e.renewals.Done(renewals)
		return
	}
	e.effect(Effect{Kind: Renew, Batch: b})
}

// batchRenewed takes in the outcomes of a batch.
func (e *Engine) batchRenewed(b *Batch, outcomes []driver.Renewal) {
	gone := map[string]error{}
	for i, h := range b.holds {
		r := outcomes[i]
		if h.over && driver.Gone(r.Err) {
			gone[h.owner] = r.Err // whoever has the hold now
		}
		e.renewed(h, r)
	}
	e.gone(gone)
	e.renewals.Done(b.renewals)
}

// renewed takes in the outcome of a renewal. If the hold is over meanwhile it does nothing:
// see gone for what the outcome says of the caller that has the hold now.
func (e *Engine) renewed(h *Hold, r driver.Renewal) {
	if h.over {
		return
	}
	final := e.expire(h)
	doubted := h.extras().trouble != nil
	if r.Err != nil && !driver.Gone(r.Err) {
		h.ensureExtras().trouble = r.Err
		e.endCohortOf(h) // the time in doubt is the holder's, to stop in
		h.machine.Failed(e.now)
	}
	switch {
	case r.Err == nil && h.machine.Renewed(e.now, r.Since, r.Valid):
		h.valid, h.handed = r.Valid, false
		if doubted {
			h.extra.trouble = nil
		}
		e.schedule(h)
		if doubted {
			e.tellOf(h, Recovered, nil)
		}
	case r.Err != nil && driver.Gone(r.Err):
		h.machine.Gone()
		e.lose(h, r.Err)
	case final && h.machine.Trusted(e.now):
		h.handed = h.handed && r.Err != nil // whatever it says, the deadline stands
	case r.Err != nil && h.machine.Trusted(e.now):
		e.schedule(h)
		if !doubted {
			e.tellOf(h, InDoubt, r.Err)
		}
	default:
		// The answer came after the deadline: whatever it says, a lease that is over is
		// never revived (P2).
		e.lose(h, nil)
	}
}

// renewCalled begins a renewal that a caller has asked for.
func (e *Engine) renewCalled(c *Caller) Action {
	if c.stage != holding {
		return Action{Do: No, Err: c.err}
	}
	if e.expire(c.hold) {
		return Action{Do: No, Err: ErrMaxHold}
	}
	return Action{Do: Ask, Grant: e.grant(c.hold)}
}

// renewAnswered takes its outcome in.
func (e *Engine) renewAnswered(c *Caller, owner string, r driver.Renewal) Action {
	h := c.hold
	e.renewed(h, r)
	if driver.Gone(r.Err) {
		e.gone(map[string]error{owner: r.Err})
	}
	if h.machine.Final() {
		r.Err = ErrMaxHold // that came first
	}
	return Action{Do: Done, Err: r.Err}
}
