package holdfast

import (
	"log/slog"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// turn is a client's turn at a name that several of its goroutines want: a hold in
// the store that is passed on from one to the next inside the process, because that
// costs a thousandth of what it costs through the store. The owner stays the same
// and each holder has a token of its own, from the block that the grant reserved
// (driver.Caps.TokenBlock, P3); the trust deadline passes on with the hold (P1).
//
// Others wait no more than a little longer for it (P8): a turn is over after as many
// holds as the block has tokens, or when turnFor has passed since the store's grant.
// Whoever waits in this process then takes a place in the store's queue, as if the
// holder were a stranger, and the store is told which token is in use now.
type turn struct {
	hold *hold // the one that has it; nil: no turn is on
	left int   // how often it may still be passed on
	over due.Entry
}

// turnFor is how long holds are passed on. What lasts longer can pay for the way
// through the store.
const turnFor = 10 * time.Millisecond

// turnForContended is turnFor if others wait in the store's queue.
const turnForContended = 2 * time.Millisecond

// passable reports whether a new hold can be another's as it is. One that is never
// renewed cannot, because the next would have less than its TTL.
func (h *hold) passable() bool {
	return h.mode == Exclusive && h.token != 0 && h.how.MinHold == 0 && h.how.RenewEvery >= 0
}

// unsaid reports whether the store knows the hold by a lower token.
func (h *hold) unsaid() bool {
	h.how.client.mu.Lock()
	defer h.how.client.mu.Unlock()
	return h.passed
}

// beginTurn begins a turn if there is anybody to pass the hold on to. It is called
// with the client's mutex, before the head leaves the gate.
func (c *Client) beginTurn(g *gateway, h *hold, grant driver.Grant, now driver.Instant) {
	if grant.Block < 2 || !g.Behind() || !h.passable() {
		return
	}
	g.turn.hold, g.turn.left = h, grant.Block-1
	over := now.Add(turnFor)
	if grant.Contended {
		over = now.Add(turnForContended)
	}
	c.turns.Set(g, over)
	for _, w := range g.Shut() {
		refused := w.Ref.(*acquisition)
		refused.held = h.heldError(now)
		close(refused.news)
	}
}

// heldError is what those are told who only try.
func (h *hold) heldError(now driver.Instant) *HeldError {
	return &HeldError{
		Name: h.name, Note: h.how.Note, Token: h.token,
		ExpiresIn: max(0, h.machine.Since().Add(h.valid+h.how.LockDelay).Sub(now)),
	}
}

// turnOf returns the gate at which the hold has a turn, or nil.
func (c *Client) turnOf(h *hold) *gateway {
	if g := c.gates[h.name]; g != nil && g.turn.hold == h {
		return g
	}
	return nil
}

// passOn passes a hold whose leases are all released on to the next who waits, if
// it still may, and reports whether it has. The event tells of the hold's end.
func (c *Client) passOn(g *gateway, h *hold, event Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, t := c.clock.Now(), &g.turn
	if t.hold != h || t.left == 0 || now >= t.over.At() || c.closed || h.machine.Until().Sub(now) <= h.valid/3 {
		return false
	}
	w := g.Pass(h.how.Shape)
	if w == nil {
		return false
	}
	grant := h.grant()
	grant.Token++
	grant.Passed = true
	a := w.Ref.(*acquisition)
	next := newHold(a.lock, grant, now)
	next.machine.PassedOn(h.machine.Until(), t.over.At()) // the store has the token of the turn's first
	a.lease = &next.first
	t.hold = next
	t.left--
	c.track(next)
	c.emit(c.opts.Events.Released, slog.LevelDebug, "released", event)
	a.acquired(next)
	close(a.news)
	return true
}

// keep ends the hold's turn, if it has one: from now on it cannot be another's as it is.
func (c *Client) keep(h *hold) {
	if g := c.turnOf(h); g != nil {
		c.endTurn(g)
	}
}

// endTurn ends the turn at a gate: whoever waits there goes to the store now. It is
// called with the client's mutex.
func (c *Client) endTurn(g *gateway) {
	name := g.turn.hold.name
	g.turn.hold = nil
	c.turns.Drop(g)
	c.wakeNext(name, g, g.Open())
}
