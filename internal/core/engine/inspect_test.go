package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// This file is for the exploration: copies of an engine, what tells two states apart, and what is
// wrong with one.

// Copy is what corresponds in a clone to what the engine refers to.
type Copy struct {
	callers     map[*Caller]*Caller
	holds       map[*Hold]*Hold
	gates       map[*gate]*gate
	withdrawals map[*withdrawal]*withdrawal
}

// Clone returns a copy of the engine, which shares nothing with it that changes.
func (e *Engine) Clone() (*Engine, *Copy) {
	m := &Copy{map[*Caller]*Caller{}, map[*Hold]*Hold{}, map[*gate]*gate{}, map[*withdrawal]*withdrawal{}}
	c := *e
	c.gates = make(map[string]*gate, len(e.gates))
	for name, g := range e.gates {
		c.gates[name] = m.gate(g)
	}
	c.spare, c.effects = nil, nil
	c.left = slices.Clone(e.left)
	c.deadlines = e.deadlines.Clone(m.Hold)
	c.cohorts = e.cohorts.Clone(m.gate)
	c.renewals = e.renewals.Clone(m.Hold)
	c.withdrawn = e.withdrawn.Clone(m.withdrawal)
	return &c, m
}

// Caller returns the copy of a caller.
func (m *Copy) Caller(c *Caller) *Caller {
	if c == nil {
		return nil
	}
	if known := m.callers[c]; known != nil {
		return known
	}
	twin := &Caller{}
	*twin = *c
	m.callers[c] = twin
	twin.gate, twin.hold = m.gate(c.gate), m.Hold(c.hold)
	twin.prev, twin.next = m.Caller(c.prev), m.Caller(c.next)
	return twin
}

// Hold returns the copy of a hold.
func (m *Copy) Hold(h *Hold) *Hold {
	if h == nil {
		return nil
	}
	if known := m.holds[h]; known != nil {
		return known
	}
	twin := &Hold{
		name: h.name, settings: h.settings, owner: h.owner, token: h.token, handle: h.handle,
		valid: h.valid, taken: h.taken, machine: h.machine, sharers: h.sharers, mode: h.mode,
		over: h.over, stray: h.stray, handed: h.handed, degraded: h.degraded, block: h.block, deadline: h.deadline, renewal: h.renewal,
	}
	m.holds[h] = twin
	twin.until.Store(h.until.Load())
	if h.extra != nil {
		extra := *h.extra
		twin.extra = &extra
	}
	twin.callers = m.Caller(h.callers)
	return twin
}

func (m *Copy) gate(g *gate) *gate {
	if g == nil {
		return nil
	}
	if known := m.gates[g]; known != nil {
		return known
	}
	twin := &gate{}
	*twin = *g
	m.gates[g] = twin
	twin.first, twin.last = m.Caller(g.first), m.Caller(g.last)
	twin.cohort.hold = m.Hold(g.cohort.hold)
	return twin
}

func (m *Copy) withdrawal(w *withdrawal) *withdrawal {
	if known := m.withdrawals[w]; known != nil {
		return known
	}
	twin := *w
	m.withdrawals[w] = &twin
	return &twin
}

// Batch returns the copy of a batch that is under way.
func (m *Copy) Batch(b *Batch) *Batch {
	twin := *b
	twin.holds = mapped(b.holds, m.Hold)
	twin.renewals.Items = mapped(b.renewals.Items, m.Hold)
	twin.withdrawals.Items = mapped(b.withdrawals.Items, m.withdrawal)
	return &twin
}

func mapped[T any](from []T, f func(T) T) []T {
	to := make([]T, len(from))
	for i, t := range from {
		to[i] = f(t)
	}
	return to
}

// AppendState appends what tells this state from others to b: two engines with the same have
// the same future, apart from the texts of errors and the times of news. The number of a
// caller comes from its user.
func (e *Engine) AppendState(b []byte, now driver.Instant, number func(*Caller) int) []byte {
	w := &stateWriter{b, now, number}
	w.bits(e.closed, e.silence != nil)
	w.int(int64(e.open))
	for _, name := range slices.Sorted(maps.Keys(e.gates)) {
		w.text(name)
		w.gate(e.gates[name])
	}
	holds := slices.Clone(e.deadlines.All())
	slices.SortFunc(holds, func(a, b *Hold) int { return strings.Compare(a.owner, b.owner) })
	for _, h := range holds {
		w.hold(h)
	}
	w.b = e.renewals.AppendState(w.b, now, func(b []byte, h *Hold) []byte { return append(b, h.owner...) })
	w.b = e.withdrawn.AppendState(w.b, now, func(b []byte, x *withdrawal) []byte {
		v := &stateWriter{b, now, number}
		v.text(x.grant.Owner)
		v.at(x.until)
		v.int(int64(x.pause))
		return v.b
	})
	for _, g := range e.left {
		w.text(g.Owner)
	}
	return w.b
}

// AppendCaller appends a caller's own state.
func (e *Engine) AppendCaller(b []byte, c *Caller, now driver.Instant, number func(*Caller) int) []byte {
	w := &stateWriter{b, now, number}
	w.bits(c.err != nil, c.err == ErrReleased)
	w.int(int64(c.stage), int64(c.release))
	if c.hold != nil {
		w.hold(c.hold)
	}
	return w.b
}

// stateWriter appends parts of a state.
type stateWriter struct {
	b      []byte
	now    driver.Instant
	number func(*Caller) int
}

func (w *stateWriter) int(ns ...int64) {
	for _, n := range ns {
		w.b = binary.AppendVarint(w.b, n)
	}
}

func (w *stateWriter) at(t driver.Instant) { w.int(int64(t - w.now)) }

func (w *stateWriter) text(s string) { w.b = append(append(w.b, s...), 0) }

func (w *stateWriter) bits(bits ...bool) {
	n := int64(0)
	for i, bit := range bits {
		if bit {
			n |= 1 << i
		}
	}
	w.int(n)
}

func (w *stateWriter) gate(g *gate) {
	w.bits(g.told, g.hot, g.followed, g.closed, g.place.sent, g.place.stray, g.place.lost != nil, g.talk.contact, g.talk.held != nil, g.talk.last != nil, g.talk.paused)
	w.int(int64(g.talk.step), int64(g.talk.pause), int64(g.place.tokens))
	w.text(g.place.owner)
	if g.place.confirmed != 0 {
		w.at(g.place.confirmed)
	}
	for c := range g.callers() {
		w.int(int64(w.number(c)), int64(c.stage))
	}
	w.int(-1)
	if g.talk.step == confirm {
		w.at(g.talk.grant.Since)
		w.int(int64(g.talk.grant.Valid), int64(g.talk.grant.Token))
	}
	if h := g.cohort.hold; h != nil {
		w.int(int64(g.cohort.left))
		w.at(g.cohort.over.At())
		w.hold(h)
	}
}

func (w *stateWriter) hold(h *Hold) {
	x := h.extras()
	w.bits(h.over, h.stray, h.handed, x.trouble != nil, x.downgrading, x.used, x.hearsay)
	w.text(h.owner)
	w.int(int64(h.token), int64(h.mode), int64(h.valid), int64(h.sharers))
	w.b = h.machine.AppendState(w.b, w.now)
	if at, ok := h.renewedUntil(); ok {
		w.at(at)
	}
	for c := h.callers; c != nil; c = c.next {
		w.int(int64(w.number(c)))
	}
}

// Check returns what is wrong with the state, whatever led to it.
func (e *Engine) Check() error {
	for name, g := range e.gates {
		if err := g.check(); err != nil {
			return fmt.Errorf("gate %q: %w", name, err)
		}
	}
	for _, h := range e.deadlines.All() {
		if h.over {
			return fmt.Errorf("the hold of %s is over, and still looked after", h.owner)
		}
	}
	return nil
}

func (g *gate) check() error {
	tries := 0
	for c := range g.callers() {
		want := behind
		if c == g.first && !g.closed {
			want = head
		}
		if c.stage != want || c.gate != g {
			return fmt.Errorf("P7: caller %v is in state %d, not %d", c.Ref, c.stage, want)
		}
		if c.try {
			tries++
		}
	}
	switch {
	case g.empty():
		return errors.New("P9: nobody is there")
	case tries != g.tries:
		return fmt.Errorf("%d tries are counted as %d", tries, g.tries)
	case g.closed != (g.cohort.hold != nil):
		return errors.New("P7: it is closed for nobody")
	case g.closed && g.cohort.hold.extras().trouble != nil:
		return errors.New("P1: a hold in doubt may be handed over")
	case g.first == nil && g.place.sent:
		return errors.New("P6: nobody looks after its place in the store")
	}
	return nil
}

// Asleep reports whether the caller waits behind others of its client.
func (c *Caller) Asleep() bool { return c.stage == behind }

// Held reports whether the caller has a lease that is not over.
func (c *Caller) Held() bool { return c.stage == holding }

// Taken returns when the caller's hold was granted, or handed over to it.
func (c *Caller) Taken() driver.Instant { return c.hold.taken }
