package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/lease"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// Caller is one goroutine's use of a lock, from its acquire to its release. Make one by
// Init. Only the engine changes it.
type Caller struct {
	Ref any // the user's; the engine does not touch it

	name       string
	settings   *Settings
	try        bool // it does not wait once the name is known to be held
	stage      stage
	source     Source
	gate       *gate   // while it waits there
	prev, next *Caller // at the gate; next: of the same hold
	hold       *Hold
	entered    driver.Instant
	err        error // refused: what is known of the holder; ended: why; then what its release returned
	release    releaseState
}

// stage is where a caller is on its way.
type stage uint8

const (
	idle    stage = iota
	behind        // at the gate, behind the head or while the gate is closed
	head          // at the gate; it talks to the store
	refused       // a try that has left, because the name is held
	gaveUp        // has left
	holding       // has the lease
	ended         // had the lease: released, or lost
)

// Source is where a caller got its hold from.
type Source uint8

// The sources of a hold, as holdfast.Source numbers them.
const (
	Free     Source = iota // from the store, which never told the caller to wait
	Queued                 // from the store, after it had told the caller to wait
	Handed                 // from other callers of the client, without a request of its own
	Rejoined               // it joined a hold that it has already
)

// Source returns where the caller got its hold from.
func (c *Caller) Source() Source { return c.source }

// Init makes a caller ready for Entered or Shared.
func (c *Caller) Init(name string, s *Settings, try bool, ref any) {
	*c = Caller{Ref: ref, name: name, settings: s, try: try}
}

// Name returns the name that it wants or holds, without the client's prefix.
func (c *Caller) Name() string { return c.name }

// entered takes a caller in: it is the head, or waits behind others.
func (e *Engine) entered(c *Caller, contended bool) Action {
	if e.closed {
		return Action{Do: No, Err: driver.ErrClosed}
	}
	g := e.gate(c.name)
	switch {
	case g.mismatched(c):
		return Action{Do: No, Err: driver.ErrMismatch}
	case c.try && (g.told || g.closed):
		c.stage, c.err = refused, e.knownHolder(g, c.name)
		return Action{Do: No, Err: c.err}
	}
	c.entered = e.now
	if g.empty() {
		c.stage = head
		g.talk = dialogue{}
		g.add(c)
		return e.begin(c, contended)
	}
	c.stage = behind
	g.add(c)
	return Action{Do: Sleep}
}

// knownHolder is what can be said of the holder without asking the store.
func (e *Engine) knownHolder(g *gate, name string) *driver.HeldError {
	switch {
	case g.cohort.hold != nil:
		return g.cohort.hold.heldError(e.now)
	case g.talk.held != nil:
		return g.talk.held
	}
	return &driver.HeldError{Name: name} // the head is new, and knows only what its predecessor did
}

// woken says what a caller does that an effect has woken.
func (e *Engine) woken(c *Caller) Action {
	switch c.stage {
	case refused:
		return Action{Do: No, Err: c.err}
	case holding, ended:
		return Action{Do: Yes}
	case head:
		if c.gate.talk.step == begin {
			return e.begin(c, false)
		}
		c.gate.talk.pause = 0 // it paused, and this client has released the name
		return e.ask(c)
	}
	return Action{Do: Sleep}
}

// begin chooses the head's first request. Who knows that the name is held asks for a place
// in the store's queue at once, which saves a round trip.
func (e *Engine) begin(c *Caller, contended bool) Action {
	g := c.gate
	t := &g.talk
	t.step, t.contact = tryOnce, g.told
	e.ensurePlace(g)
	// The store may know the place. Then the idempotent request is right, and a try, which
	// has no use for a place, begins without it.
	switch sent := g.place.sent; {
	case c.try && sent:
		e.withdrawPlace(c.name, g.renounce())
	case e.Queue && !c.try && e.queuedLately(g):
		t.step, t.contact, t.held = await, true, g.place.held
	case e.Queue && !c.try && (sent || g.hot || g.told || contended):
		t.step = enqueue
	}
	return e.ask(c)
}

// queuedLately reports whether the store has confirmed the place so short a time ago that a
// new head can wait at once.
func (e *Engine) queuedLately(g *gate) bool {
	p := &g.place
	return p.sent && !p.stray && p.confirmed != 0 && e.now < p.confirmed.Add(e.Poll/2)
}

// untilConfirm returns how long the head waits before it confirms the place again.
func (e *Engine) untilConfirm(g *gate) time.Duration {
	every := e.Poll
	if held := g.talk.held; held != nil {
		every = driver.Caps{Poll: e.Poll, Recalls: e.Recalls}.ConfirmEvery(held.Ahead)
	}
	every = e.Jitter(every)
	if at := g.place.confirmed; at != 0 {
		return max(at.Add(every).Sub(e.now), 0)
	}
	return every
}

// ensurePlace gives the gate an owner under which the head asks the store: that of the
// place which it has inherited, or a new one.
func (e *Engine) ensurePlace(g *gate) {
	if g.place.owner == "" {
		g.place = place{owner: e.NewOwner(), terms: g.first.settings}
	}
}

// ask returns the head's next request.
func (e *Engine) ask(c *Caller) Action {
	g := c.gate
	t := &g.talk
	if e.closed {
		return e.giveUp(c, nil)
	}
	e.ensurePlace(g)
	if t.step == await && !e.Queue && !t.paused {
		// The first polls of a store without a queue are quick and the later ones slow.
		t.pause = min(max(2*t.pause, FirstPause), e.Poll)
		if t.held != nil && t.held.Poll > 0 {
			t.pause = min(t.pause, t.held.Poll)
		}
		t.paused = true
		return Action{Do: Pause, For: t.untilOpen(e.Jitter(t.pause)), Poll: true, Opens: t.opens()}
	}
	t.paused = false
	if err := e.overloaded(); err != nil && !g.place.sent {
		return e.failed(c, err, nil)
	}
	t.fresh, g.place.sent = !g.place.sent, true
	a := Action{Do: Try, Grant: driver.Grant{Request: c.settings.request(e.Prefix+c.name, g.place.owner)}}
	a.Grant.Tokens = e.tokensFor(g, c)
	switch {
	case t.step == enqueue:
		a.Do = Enqueue
	case t.step == await && e.Queue:
		a.Do, a.For = Await, t.untilOpen(e.untilConfirm(g))
		return a
	}
	g.place.tokens = a.Grant.Tokens
	return a
}

// tokensFor is how many tokens the head's hold needs: one, unless it may be handed over to
// others who wait behind it, or have since the last grant.
func (e *Engine) tokensFor(g *gate, c *Caller) int {
	if g.followed && c.settings.mayHandOver() {
		return max(1, e.TokenBlock)
	}
	return 1
}

// FirstPause is the first pause between two polls of a store without a queue, and after an
// error of a store.
const FirstPause = 5 * time.Millisecond

// untilOpen shortens a pause to when the name opens by itself, where that is known. Others that
// are ahead in the store's queue look then.
func (t *dialogue) untilOpen(d time.Duration) time.Duration {
	if opens := t.opens(); opens > 0 {
		d = min(d, opens)
	}
	return d
}

// opens returns in how long the name opens by itself for this caller, and 0 if that is not known.
func (t *dialogue) opens() time.Duration {
	if t.held != nil && t.held.ExpiresIn > 0 && t.held.Ahead == 0 {
		return t.held.ExpiresIn + time.Millisecond
	}
	return 0
}

// rested continues after a pause.
func (e *Engine) rested(c *Caller, over error) Action {
	if over != nil {
		return e.giveUp(c, nil)
	}
	return e.ask(c)
}

// answered takes in what the store says to the head's request. Over is why the caller's
// context has ended, or nil.
func (e *Engine) answered(c *Caller, grant driver.Grant, err, over error) Action {
	g := c.gate
	t := &g.talk
	if err == nil {
		return e.accept(c, grant)
	}
	if t.step == await && e.Queue {
		return e.failed(c, err, over) // the place is as it was
	}
	if grant.Handle != nil {
		g.place.handle = grant.Handle
	}
	if errors.Is(err, driver.ErrUncertain) {
		g.place.stray, e.silence = true, err
	} else if t.step != enqueue || t.fresh && !errors.Is(err, driver.ErrHeld) {
		g.place.sent = false // the store has certainly not done it: nothing is to be withdrawn (P10)
		if !e.Queue {
			// A quorum takes back the votes of a request that it has refused. A next request of the same owner
			// might lose its votes by that, and with them a hold that is trusted (P1).
			g.renounce()
		}
	}
	return e.failed(c, err, over)
}

// accept takes a grant in. A grant that has less than a third of its time left is renewed first, so that
// the work begins with a full TTL. A claim with a minimum hold is renewed first too: until its first
// renewal the store knows of no minimum (P5).
func (e *Engine) accept(c *Caller, grant driver.Grant) Action {
	t := &c.gate.talk
	if e.closed {
		e.discard(c, grant)
		return e.giveUp(c, driver.ErrClosed)
	}
	if lost := c.gate.place.lost; lost != nil {
		e.discard(c, grant)
		return e.failed(c, lost, nil)
	}
	if !(grant.Claim && c.settings.MinHold > 0) && c.settings.timeLeft(&grant, e.now) > grant.Valid/3 {
		return e.take(c, grant)
	}
	if c.gate.place.stray {
		// An earlier request of this owner may still be on its way. If it takes the name once more, after this
		// hold has ended and another client had the name, a renewal would find that later hold, whose token is
		// another (P3).
		e.discard(c, grant)
		t.step = tryOnce
		if e.Queue && !c.try {
			t.step = enqueue
		}
		return e.ask(c)
	}
	t.step, t.grant = confirm, grant
	return Action{Do: Confirm, Grant: grant}
}

// timeLeft is for how long a holder could trust the grant.
func (s *Settings) timeLeft(g *driver.Grant, now driver.Instant) time.Duration {
	return g.Since.Add(g.Valid - lease.Margin(s.Pace.Margin, g.Valid)).Sub(now)
}

// confirmed takes in the renewal of a grant before it is used.
func (e *Engine) confirmed(c *Caller, r driver.Renewal, over error) Action {
	t := &c.gate.talk
	grant := t.grant
	t.grant = driver.Grant{}
	if r.Err != nil {
		if !driver.Gone(r.Err) {
			e.discard(c, grant)
		}
		return e.failed(c, r.Err, over)
	}
	grant.Since, grant.Valid, grant.Claim = r.Since, r.Valid, false
	switch lost := c.gate.place.lost; {
	case e.closed:
		e.discard(c, grant)
		return e.giveUp(c, driver.ErrClosed)
	case lost != nil:
		e.discard(c, grant)
		return e.failed(c, lost, over)
	case c.settings.timeLeft(&grant, e.now) > 0:
		return e.take(c, grant)
	}
	e.discard(c, grant)
	return e.failed(c, fmt.Errorf("the store's answers take longer than the TTL of %v lasts", grant.TTL), over)
}

// discard has a grant withdrawn that is of no use. An undone acquire has no minimum hold.
func (e *Engine) discard(c *Caller, grant driver.Grant) {
	grant.MinHold, grant.Stray = 0, c.gate.renounce().stray
	e.withdraw(grant)
}

// failed decides what the head does after an error of the store. Over is why its context
// has ended, or nil.
func (e *Engine) failed(c *Caller, err, over error) Action {
	g := c.gate
	t := &g.talk
	held := errors.Is(err, driver.ErrHeld)
	if held {
		e.told(c, err)
	}
	switch {
	case over != nil:
		var unanswered *ctxerr.Unanswered
		switch {
		case errors.As(err, &unanswered):
			t.last = unanswered.Why
		case !held && !errors.Is(err, over):
			t.last = err // the store's own complaint about the context would say nothing new
		}
		return e.giveUp(c, nil)
	case held && c.try:
		return e.giveUp(c, t.held)
	case held:
		t.last = nil
		if t.step == enqueue {
			g.place.confirmed, g.place.held = e.now, t.held
		}
		if e.Queue && (t.step != enqueue || g.place.tokens < e.tokensFor(g, c)) {
			t.step = enqueue
		} else {
			t.step = await
		}
		return e.ask(c)
	case errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrUnsupported), errors.Is(err, driver.ErrClosed):
		return e.giveUp(c, err)
	case driver.Gone(err):
		// The store knows that nothing is left of this owner's place: an operator broke
		// the claim, or it ran out. Line up anew.
		e.withdrawPlace(c.name, g.renounce())
		if c.try {
			return e.giveUp(c, err)
		}
	case !t.contact || c.try:
		return e.giveUp(c, err)
	case errors.Is(err, driver.ErrUncertain) && !e.Queue:
		// Only a store with a queue can be asked again under the same owner.
		e.withdrawPlace(c.name, g.renounce())
	}
	t.contact, t.last = true, err
	switch {
	case e.Queue:
		t.step = enqueue
	case t.step == confirm:
		t.step = await
	}
	t.pause = min(max(2*t.pause, FirstPause), e.Poll)
	t.paused = true
	return Action{Do: Pause, For: e.Jitter(t.pause)}
}

// told notes that the store says to wait, and lets those behind the head know who do not.
func (e *Engine) told(c *Caller, err error) {
	g := c.gate
	t := &g.talk
	known := driver.HeldError{}
	if t.held != nil {
		known = *t.held // a bare ErrHeld says nothing new
	}
	if detail := (*driver.HeldError)(nil); errors.As(err, &detail) {
		known = *detail
	}
	known.Name = c.name // the caller's, without the prefix
	t.held = &known
	first := !t.contact
	t.contact, g.told, g.hot = true, true, true
	e.dismissTries(g, t.held)
	if first && !c.try {
		e.tell(News{Kind: Waiting, About: c, Name: c.name, Mode: c.settings.Mode, Err: t.held})
	}
}

// take makes the head's grant its hold, which those right behind it share where they may,
// and lets the next at the gate be the head.
func (e *Engine) take(c *Caller, grant driver.Grant) Action {
	g := c.gate
	grant.Stray = g.place.stray
	g.followed = g.first != g.last
	g.remove(c)
	if c.source = Free; g.talk.held != nil {
		c.source = Queued
	}
	h := e.newHold(c, &grant)
	e.beginCohort(g, h, &grant)
	if h.mode == driver.Shared {
		for next := g.first; next != nil && h.sharedWith(next); next = g.first {
			g.remove(next)
			h.add(next)
			next.source = Handed
			e.wake(next)
		}
	}
	g.place, g.told, g.hot = place{}, false, h.mode == driver.Exclusive
	e.promote(h.name, g)
	e.schedule(h)
	e.tellAcquired(c)
	return Action{Do: Yes}
}

func (e *Engine) tellAcquired(c *Caller) {
	h := c.hold
	e.tell(News{Kind: Acquired, About: h.extras().first, Name: h.name, Mode: h.mode, Token: h.token, Degraded: h.degraded, After: e.now.Sub(c.entered)})
}

// cancelled takes a caller out whose context or client has ended while it slept. What it
// has become meanwhile decides, not what woke it: if the hold came at the same time, it
// must not be dropped (P6).
func (e *Engine) cancelled(c *Caller) Action {
	switch c.stage {
	case holding, ended:
		return Action{Do: Yes}
	case refused:
		return Action{Do: No, Err: c.err}
	case behind, head:
		return e.giveUp(c, nil)
	}
	return Action{Do: No}
}

// giveUp takes a caller out of the gate. The place in the store's queue stays for the next
// head if its terms are the same; else it is withdrawn.
func (e *Engine) giveUp(c *Caller, err error) Action {
	g := c.gate
	a := Action{Do: No, Err: err}
	wasHead := c.stage == head
	if g.cohort.hold != nil || g.told || g.talk.held != nil {
		a.Held = e.knownHolder(g, c.name)
	}
	if wasHead {
		a.Last = g.talk.last
	}
	g.remove(c)
	c.stage = gaveUp
	if wasHead {
		usable := e.Queue && g.first != nil && g.place.terms != nil && g.first.settings.sameTerms(g.place.terms)
		if !usable {
			e.withdrawPlace(c.name, g.renounce())
			g.told = false
		}
	}
	e.promote(c.name, g)
	return a
}

func (e *Engine) wake(c *Caller) { e.effect(Effect{Kind: Wake, Caller: c}) }
