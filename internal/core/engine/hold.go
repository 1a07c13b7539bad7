package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/batch"
	"github.com/holdfastlock/holdfast/internal/core/due"
	"github.com/holdfastlock/holdfast/internal/core/lease"
)

// The reasons why leases end, which package holdfast exports.
var (
	ErrReleased = errors.New("lease released")
	ErrMaxHold  = errors.New("the maximum hold is over")
)

// errNotRenewed is the reason of a loss when no renewal has failed: the process or its host
// stood still, or the lease has no renewal.
var errNotRenewed = errors.New("its time was over")

// Hold is one hold in the store, with the callers that share it. Ten thousand may be held:
// each word counts (P9).
type Hold struct {
	name     string
	settings *Settings
	owner    string
	token    driver.Token
	handle   any // driver.Grant.Handle
	valid    time.Duration
	taken    driver.Instant
	machine  lease.Machine
	until    atomic.Int64 // the trust deadline, for those who do not have the engine's lock
	block    int32        // driver.Grant.Block
	sharers  int32        // callers that have not called Release
	mode     driver.Mode  // of the terms, until a downgrade
	over     bool         // lost or released, and in no queue
	stray    bool         // driver.Grant.Stray
	handed   bool         // driver.Grant.HandedOver
	degraded bool         // driver.Grant.Degraded
	extra    *extras      // nil: none

	deadline due.Entry
	renewal  batch.Entry
	callers  *Caller // linked: those whose leases are not over, and some whose are
}

// extras is what most holds never have.
type extras struct {
	trouble     error   // of the last renewal, if it failed
	downgrading bool    // a downgrade has been sent: others may share the name by now (P1)
	used        bool    // a caller has released its lease after use: MinHold counts
	hearsay     bool    // it is lost by the store's news, which may be about an earlier hold of its owner
	first       *Caller // whose grant it was, if Config.Traced; its lease may be over
	ended       int32   // callers in the list whose leases are over
}

// extras returns the hold's, to be read.
func (h *Hold) extras() extras {
	if h.extra == nil {
		return extras{}
	}
	return *h.extra
}

// ensureExtras returns the hold's, to be changed.
func (h *Hold) ensureExtras() *extras {
	if h.extra == nil {
		h.extra = &extras{}
	}
	return h.extra
}

// newHold returns the hold that a grant is to the caller, from now on.
func (e *Engine) newHold(c *Caller, g *driver.Grant) *Hold {
	h := &Hold{
		name: c.name, settings: c.settings,
		owner: g.Owner, token: g.Token, handle: g.Handle, mode: g.Mode, stray: g.Stray, handed: g.HandedOver, degraded: g.Degraded, block: int32(g.Block),
		valid: g.Valid, taken: e.now,
		machine: lease.Start(e.now, g.Since, g.Valid, g.Claim, &c.settings.Pace),
	}
	h.add(c)
	if e.Traced {
		h.ensureExtras().first = c
	}
	return h
}

// add lets a caller share the hold.
func (h *Hold) add(c *Caller) {
	c.stage, c.hold, c.next = holding, h, h.callers
	h.callers = c
	h.sharers++
}

// sharedWith reports whether a caller at the gate may have a part of the shared hold.
func (h *Hold) sharedWith(c *Caller) bool {
	return c.settings.sameTerms(h.settings) && c.settings.MaxHold == h.settings.MaxHold
}

// Caller's lease, for those who have the engine's lock unless it says otherwise.

// Until returns the trust deadline. It may be called at any time, by anybody.
func (c *Caller) Until() driver.Instant { return driver.Instant(c.hold.until.Load()) }

// Mode returns how the name is held.
func (c *Caller) Mode() driver.Mode { return c.hold.seenMode() }

// Token returns the fencing token.
func (c *Caller) Token() driver.Token { return c.hold.token }

// Degraded reports whether the hold is in a second store. It never changes.
func (c *Caller) Degraded() bool { return c.hold.degraded }

// Hold returns the hold, which others may share. It does not change, and is of use to tell
// holds apart.
func (c *Caller) Hold() *Hold { return c.hold }

// Permits returns how many slots of a semaphore the hold has.
func (c *Caller) Permits() int { return c.settings.Permits }

// InitSharer makes another caller ready for Shared.
func (c *Caller) InitSharer(other *Caller, ref any) { other.Init(c.name, c.settings, false, ref) }

// Grant returns the caller's hold as its driver knows it.
func (e *Engine) Grant(c *Caller) driver.Grant { return e.grant(c.hold) }

// shown ends local hand-over for the caller's hold. To the store the next holder's hold would be the
// same one: what was made for this holder, and arrives after its release, would be carried out beside
// the next (P1).
func (e *Engine) shown(c *Caller) {
	if c.stage == holding {
		e.endCohortOf(c.hold)
	}
}

// seenMode is the mode that the hold's callers may count on.
func (h *Hold) seenMode() driver.Mode {
	if h.extras().downgrading {
		return driver.Shared
	}
	return h.mode
}

// request is what the store knows of the hold.
func (e *Engine) request(h *Hold) driver.Request {
	r := h.settings.request(e.Prefix+h.name, h.owner)
	r.Mode = h.mode
	return r
}

// grant is the hold as the driver gave it.
func (e *Engine) grant(h *Hold) driver.Grant {
	return driver.Grant{
		Request: e.request(h), Token: h.token, Block: int(h.block), Since: h.machine.Since(), Valid: h.valid,
		Stray: h.stray, HandedOver: h.handed, Degraded: h.degraded, Handle: h.handle,
	}
}

// schedule puts a hold into the queues, or moves it to where it belongs now.
func (e *Engine) schedule(h *Hold) {
	until := h.machine.Until()
	h.until.Store(int64(until))
	if at, ok := h.renewedUntil(); ok {
		until = min(until, at)
	}
	e.deadlines.Set(h, until)
	if at, ok := h.machine.RenewAt(); ok {
		e.renewals.Set(h, at)
	} else {
		e.renewals.Drop(h)
	}
}

// unschedule takes a hold out of the queues: it is over.
func (e *Engine) unschedule(h *Hold) {
	h.over = true
	e.deadlines.Drop(h)
	e.renewals.Drop(h)
}

// retire is unschedule for a hold that nobody else in the client gets.
func (e *Engine) retire(h *Hold) {
	e.unschedule(h)
	e.endCohortOf(h)
}

// renewedUntil returns when renewals of the hold are to end (MaxHold), if they are and have
// not.
func (h *Hold) renewedUntil() (driver.Instant, bool) {
	most := h.settings.MaxHold
	return h.taken.Add(most), most > 0 && !h.machine.Final()
}

// expire ends the renewals of a hold whose MaxHold is over, and reports whether they have
// ended. The clock decides, not whether Ticked has come.
func (e *Engine) expire(h *Hold) bool {
	if at, ok := h.renewedUntil(); ok && e.now >= at && !h.over && h.machine.Trusted(e.now) {
		h.machine.Finish()
		e.schedule(h)
		e.tellOf(h, Expiring, nil)
	}
	return h.machine.Final()
}

// checked brings a hold up to date with the clock, and says whether it is trusted: the
// deadline counts, not whether a timer has fired (P2).
func (e *Engine) checked(h *Hold) Action {
	if h.machine.Trusted(e.now) {
		return Action{Do: Yes}
	}
	e.lose(h, nil)
	return Action{Do: No}
}

// lose ends a hold that the machine has found lost.
func (e *Engine) lose(h *Hold, reason error) {
	if h.over {
		return
	}
	e.retire(h)
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
	lost := e.LostError(h.name, h.token, reason)
	e.tellOf(h, Lost, lost)
	e.endAll(h, lost)
}

// lossesTold takes in the store's news of holds that are gone. The news may be old: an operator broke the
// owner's claim, the owner heard of neither, asked again and was granted the name. So each of these holds
// is also released, once the work under it has stopped.
func (e *Engine) lossesTold(reasons map[string]error) {
	for _, h := range e.deadlines.All() {
		if reasons[h.owner] != nil {
			h.ensureExtras().hearsay = true
		}
	}
	e.gone(reasons)
}

// gone ends the holds of owners of which the store says that it has no such hold any more,
// each for its reason. It goes by owners, because a hold may have been handed over: A's
// renewal is under way when A releases and B gets the hold. If the store answers A that the hold is
// broken, B's is.
func (e *Engine) gone(reasons map[string]error) {
	if len(reasons) == 0 {
		return
	}
	var lost []*Hold
	for _, h := range e.deadlines.All() {
		if reasons[h.owner] != nil {
			lost = append(lost, h)
		}
	}
	for _, h := range lost {
		h.machine.Gone()
		e.lose(h, reasons[h.owner])
	}
	// Of a grant that is still on its way to the client nobody else would hear.
	for _, g := range e.gates {
		if reason := reasons[g.place.owner]; reason != nil {
			g.place.lost = reason
		}
	}
	// Between two holders there is nobody to be told: the release will be.
	var between []*gate
	for _, g := range e.cohorts.All() {
		if h := g.cohort.hold; h.over && reasons[h.owner] != nil {
			between = append(between, g)
		}
	}
	for _, g := range between {
		e.endCohort(g)
	}
}

// endAll ends the leases of all callers of a hold.
func (e *Engine) endAll(h *Hold, err error) {
	for c := h.callers; c != nil; {
		next := c.next
		c.next = nil
		e.end(c, err)
		c = next
	}
	h.callers = nil
}

// end ends a caller's lease, if it has not ended.
func (e *Engine) end(c *Caller, err error) {
	if c.stage == holding {
		c.stage, c.err = ended, err
		e.effect(Effect{Kind: End, Caller: c, Err: err})
	}
}

// tellOf tells of the hold's state, with its trust deadline, or of its end.
func (e *Engine) tellOf(h *Hold, kind NewsKind, err error) {
	n := News{Kind: kind, About: h.extras().first, Name: h.name, Mode: h.seenMode(), Token: h.token, Degraded: h.degraded, Err: err}
	if kind == InDoubt || kind == Recovered || kind == Expiring {
		n.Until = h.machine.Until()
	}
	if kind == Lost || kind == GaveBack || kind == Expiring {
		n.After = e.now.Sub(h.taken)
	}
	e.tell(n)
}

// share lets another caller of the same client have a lease on the hold too.
func (e *Engine) share(c, other *Caller, mode driver.Mode) Action {
	switch h := c.hold; {
	case c.stage != holding:
		return Action{Do: No, Err: c.err}
	case mode == driver.Exclusive && h.seenMode() != driver.Exclusive:
		return Action{Do: No}
	default:
		h.add(other)
		other.source = Rejoined
		return Action{Do: Yes}
	}
}

// downgradeCalled begins the downgrade of an exclusive hold to a shared one.
func (e *Engine) downgradeCalled(c *Caller) Action {
	h := c.hold
	switch {
	case c.stage != holding:
		return Action{Do: No, Err: c.err}
	case h.mode == driver.Shared:
		return Action{Do: Yes}
	case h.mode != driver.Exclusive:
		return Action{Do: No, Err: fmt.Errorf("a hold on %s cannot be downgraded: %w", h.mode, driver.ErrUnsupported)}
	case h.sharers != 1:
		return Action{Do: No, Err: errors.New("the hold has other leases, which count on its being exclusive: release them first")}
	case h.handed:
		return Action{Do: RenewFirst} // what others must be above is this lease's token (P3)
	}
	h.ensureExtras().downgrading = true
	e.endCohortOf(h)
	return Action{Do: Ask, Grant: e.grant(h)}
}

// downgradeAnswered takes in the store's answer, which says of the hold what a renewal's
// would.
func (e *Engine) downgradeAnswered(c *Caller, g driver.Grant, err error) Action {
	h := c.hold
	if errors.Is(err, driver.ErrUnsupported) { // nothing was sent, as of a mutex where that is no write lock
		h.ensureExtras().downgrading = false
		return Action{Do: Done, Err: err}
	}
	if err == nil && !h.over {
		h.mode, h.token, h.handle = g.Mode, g.Token, g.Handle
	}
	e.renewed(h, driver.Renewal{Since: g.Since, Valid: g.Valid, Err: err})
	return Action{Do: Done, Err: err}
}
