package engine

import (
	"iter"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// gate is the queue of one client's callers for one name. Only the first of them, the head,
// talks to the store; the others wait for its news. While the client itself has the name
// and may hand it over (cohort.go), the gate is closed: then there is no head, and nobody
// talks to the store.
//
// The callers are in a linked list, in the order of their arrival: ten thousand that give
// up together, or are served one after the other, take ten thousand steps (P9).
type gate struct {
	name        string
	first, last *Caller
	size        int      // how many callers are there
	tries       int      // how many of them do not wait
	talk        dialogue // of the head
	place       place
	told        bool // the store has told the head to wait
	hot         bool // somebody had the name when the gate last heard of it
	followed    bool // since the last grant, or at it, others have waited behind the head
	closed      bool
	cohort      cohort
}

// place is the gate's one place in the store's queue. A head that gives up leaves it to the
// next, if that one's terms are the same.
type place struct {
	owner     string // "": none
	terms     *Settings
	sent      bool              // the store may know it: it must be used or withdrawn
	stray     bool              // a request for it got no answer and may still be on its way
	handle    any               // what the driver has said of it: driver.Grant.Handle
	tokens    int               // that were asked for
	lost      error             // the store has told that its hold is gone, before a caller had it
	confirmed driver.Instant    // when the store last said that it is queued; 0: never
	held      *driver.HeldError // what it said of the holder then
}

// dialogue is what the head knows of its requests to the store.
type dialogue struct {
	step    step
	contact bool              // the store has answered: from now on its errors are retried
	held    *driver.HeldError // the last that it said of the holder
	last    error             // its last error
	pause   time.Duration     // before the next request; it grows
	paused  bool              // the pause before the next request is over
	grant   driver.Grant      // to be renewed before it is used
	fresh   bool              // the request under way is the first of its owner
}

// step is what the head asks next.
type step uint8

const (
	begin   step = iota // not chosen yet
	tryOnce             // is it free?
	enqueue             // take, confirm or collect the place in the store's queue
	await               // wait for the store's push, or for the next poll
	confirm             // renew the grant
)

// maxSpare is how many empty gates are kept, so that an uncontended lock does not make
// one each time.
const maxSpare = 64

// gate returns the gate of a name, made if there is none.
func (e *Engine) gate(name string) *gate {
	g := e.gates[name]
	if g == nil {
		if n := len(e.spare); n > 0 {
			g, e.spare = e.spare[n-1], e.spare[:n-1]
		} else {
			g = &gate{}
		}
		g.name = name
		e.gates[name] = g
	}
	return g
}

// tidy forgets a gate at which nobody is (P9).
func (e *Engine) tidy(name string, g *gate) {
	if g.empty() && e.gates[name] == g {
		delete(e.gates, name)
		if len(e.spare) < maxSpare {
			*g = gate{}
			e.spare = append(e.spare, g)
		}
	}
}

// empty reports whether nobody is at the gate, and nobody's hold keeps it closed. The last to leave
// a gate has its place withdrawn, and the gate can be forgotten.
func (g *gate) empty() bool { return g.first == nil && !g.closed }

// callers yields those at the gate. The loop may take out the one that it is at.
func (g *gate) callers() iter.Seq[*Caller] {
	return func(yield func(*Caller) bool) {
		for c := g.first; c != nil; {
			next := c.next
			if !yield(c) {
				return
			}
			c = next
		}
	}
}

// mismatched reports whether a caller wants the name as another kind of lock than those at
// the gate (P10).
func (g *gate) mismatched(c *Caller) bool {
	if g.empty() {
		return false
	}
	var semaphore bool
	var slots int // a gate is closed for an exclusive hold only
	if !g.closed {
		semaphore, slots = g.first.settings.kind()
	}
	s, n := c.settings.kind()
	return s != semaphore || n != slots
}

func (g *gate) add(c *Caller) {
	g.followed = g.followed || !g.empty()
	c.gate, c.prev, c.next = g, g.last, nil
	if g.last == nil {
		g.first = c
	} else {
		g.last.next = c
	}
	g.last = c
	g.size++
	if c.try {
		g.tries++
	}
}

func (g *gate) remove(c *Caller) {
	if c.prev == nil {
		g.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		g.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.gate, c.prev, c.next = nil, nil, nil
	g.size--
	if c.try {
		g.tries--
	}
}

// dismissTries lets those leave who do not wait, but for the head: it knows already, and
// leaves by itself.
func (e *Engine) dismissTries(g *gate, held *driver.HeldError) {
	if g.tries == 0 {
		return // no need to look at ten thousand, each time that the head is told
	}
	for c := range g.callers() {
		if c.try && !(c == g.first && !g.closed) {
			g.remove(c)
			c.stage, c.err = refused, held
			e.wake(c)
		}
	}
}

// promote makes the first at the gate the head, and wakes it. A gate without callers is
// forgotten.
func (e *Engine) promote(name string, g *gate) {
	if g.first != nil && !g.closed && g.first.stage == behind {
		g.first.stage = head
		g.talk = dialogue{}
		e.wake(g.first)
	}
	e.tidy(name, g)
}

// renounce gives the place up, because it is of no use any more, and returns it.
func (g *gate) renounce() place {
	p := g.place
	g.place = place{}
	return p
}
