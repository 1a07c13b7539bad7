// Package gate is the queue of one client's goroutines for one name, as a
// state machine. Only the waiter at its head talks to the store; the others
// wait for the head's news. While the client itself has the name and may pass it
// on, the gate is shut: nobody talks to the store. What the caller is to do comes
// out of each event: whom to wake, and which place in the store's queue to withdraw.
package gate

import (
	"iter"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Shape is what two waiters must have in common to stand in one another's place
// in the store's queue, or to share one shared hold.
type Shape struct {
	Mode                    driver.Mode
	Unfair, RW              bool
	Slots, Permits          int
	TTL, LockDelay, MinHold time.Duration
	RenewEvery              time.Duration // negative: never
	Note                    string
}

// kind is what all users of a name must have in common.
func (s Shape) kind() (semaphore bool, slots int) { return s.Mode == driver.Slot, s.Slots }

// Role is what a waiter is to do.
type Role uint8

// The roles.
const (
	Behind Role = iota // wait: others are ahead in this process
	Head               // ask the store
	Joined             // done: the head's shared hold is this waiter's too
	Passed             // done: the client's own hold was passed on to this waiter
	Held               // done, only for tries: the name is known to be held
)

// Waiter is one goroutine at the gate.
type Waiter struct {
	Shape   Shape
	MaxHold time.Duration // who shares a hold must have it in common too
	Try     bool          // does not wait once the name is known to be held
	Role    Role
	in      bool // it is at the gate
	Ref     any  // the caller's

	prev, next *Waiter // at the gate
}

// Place is the gate's one place in the store's queue.
type Place struct {
	Owner string // "": none
	Shape Shape
	Sent  bool // the store may know it: it must be used or withdrawn
	Stray bool // a request for it got no answer and may still be on its way
	Data  any  // what the driver has said of it: driver.Grant.Handle
}

// Gate is the queue. The zero value is empty. Not safe for concurrent use.
//
// Whoever is at the gate is in a linked list, in order of arrival: ten thousand that
// give up together, or are served one after the other, take ten thousand steps (P9).
type Gate struct {
	first, last *Waiter // the first is the head
	tries       int     // how many at the gate do not wait
	place       Place
	told        bool // the store has told the head to wait
	hot         bool // somebody had the name when the gate last heard of it
	shut        bool // the client has the name, and may pass it on: there is no head
}

// Empty reports whether nobody is at the gate, nor to come back to it. Whoever
// empties a gate has been given its place to withdraw, so an empty gate can be
// forgotten (P9).
func (g *Gate) Empty() bool { return g.first == nil && !g.shut }

// Reset makes an empty gate as good as new.
func (g *Gate) Reset() { *g = Gate{} }

// Waiters yields those at the gate, the head first. The loop may take out the one that it is at.
func (g *Gate) Waiters() iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		for w := g.first; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

// First returns the first at the gate: the head, unless the gate is shut. Nil: nobody
// is there.
func (g *Gate) First() *Waiter { return g.first }

// Behind reports whether anybody is behind the first.
func (g *Gate) Behind() bool { return g.first != g.last }

// add puts a waiter at the end.
func (g *Gate) add(w *Waiter) {
	w.in, w.prev, w.next = true, g.last, nil
	if g.last == nil {
		g.first = w
	} else {
		g.last.next = w
	}
	g.last = w
	if w.Try {
		g.tries++
	}
}

// remove takes a waiter out.
func (g *Gate) remove(w *Waiter) {
	if w.prev == nil {
		g.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		g.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.in, w.prev, w.next = false, nil, nil
	if w.Try {
		g.tries--
	}
}

// Told reports whether the store has told the present head to wait.
func (g *Gate) Told() bool { return g.told }

// Hot reports whether the name was held when the gate last heard of it, so that
// it is better to queue than to try first.
func (g *Gate) Hot() bool { return g.hot }

// IsShut reports whether everybody waits for the client's own hold: see Shut.
func (g *Gate) IsShut() bool { return g.shut }

// Enter adds a waiter at the end and gives it its role. It refuses one that
// uses the name as another kind of lock than those at the gate (P10).
func (g *Gate) Enter(w *Waiter) error {
	sem, slots := w.Shape.kind()
	if s, n := g.kind(); (s != sem || n != slots) && !g.Empty() {
		return driver.ErrMismatch
	}
	switch {
	case w.Try && (g.told || g.shut):
		w.Role = Held
		return nil
	case g.Empty():
		w.Role = Head
	default:
		w.Role = Behind
	}
	g.add(w)
	return nil
}

// kind is that of those at the gate. A gate is shut for an exclusive hold only.
func (g *Gate) kind() (semaphore bool, slots int) {
	if g.shut || g.Empty() {
		return false, 0
	}
	return g.first.Shape.kind()
}

// Place returns the owner under which the head asks the store: that of the
// place it has inherited, or a new one.
func (g *Gate) Place(newOwner func() string) Place {
	if g.place.Owner == "" {
		g.place = Place{Owner: newOwner(), Shape: g.first.Shape}
	}
	return g.place
}

// Sent says that a request under the place's owner is going out, after which
// the store may know it.
func (g *Gate) Sent() { g.place.Sent = true }

// Unsent says that the store has certainly nothing of the place's owner.
func (g *Gate) Unsent() { g.place.Sent = false }

// Stray says that a request under the place's owner got no answer.
func (g *Gate) Stray() { g.place.Stray = true }

// Keep keeps what the driver has said of the place, to be given back with it.
func (g *Gate) Keep(data any) { g.place.Data = data }

// Renounce gives the place up because it is worth nothing any more, and returns
// it to be withdrawn; the head's next request takes a new one.
func (g *Gate) Renounce() Place {
	p := g.place
	g.place = Place{}
	return p
}

// Tell says that the store has told the head to wait. It returns the tries
// among the waiters, which need not wait for more; they have left.
func (g *Gate) Tell() (refused []*Waiter) {
	g.told, g.hot = true, true
	return g.refuse()
}

// refuse takes out the tries behind the head.
func (g *Gate) refuse() (refused []*Waiter) {
	if g.tries == 0 {
		return nil // no need to look at ten thousand, each time that the head is told
	}
	for w := range g.Waiters() {
		// The head itself may be a try: it knows already, and leaves by itself.
		if w.Try && w != g.first {
			w.Role = Held
			refused = append(refused, w)
		}
	}
	for _, w := range refused {
		g.remove(w)
	}
	return refused
}

// Shut says that the head is about to have an exclusive hold that may be passed on
// inside the client: until Open those who wait do so for that hold, and nobody asks
// the store. It returns the tries among them, which have left.
func (g *Gate) Shut() (refused []*Waiter) {
	g.shut = true
	return g.refuse()
}

// Pass passes the hold for which the gate is shut on to the first who waits, who has left, or
// returns nil if that one wants something else or there is none.
func (g *Gate) Pass(shape Shape) *Waiter {
	w := g.first
	if w == nil || w.Shape != shape {
		return nil
	}
	w.Role = Passed
	g.remove(w)
	return w
}

// Open says that the hold is not passed on any more. Next is the new head, or nil.
func (g *Gate) Open() (next *Waiter) {
	g.shut = false
	return g.promote()
}

// Grant says that the head has its hold. If it is a shared one, the waiters
// right behind that want the same have it too. All of them have left; next is
// the new head, or nil.
func (g *Gate) Grant() (joined []*Waiter, next *Waiter) {
	head := g.first
	g.remove(head)
	shares := func(w *Waiter) bool {
		return head.Shape.Mode == driver.Shared && w.Shape == head.Shape && w.MaxHold == head.MaxHold
	}
	for w := g.first; w != nil && shares(w); w = g.first {
		w.Role = Joined
		g.remove(w)
		joined = append(joined, w)
	}
	g.place = Place{}
	g.told = false
	g.hot = head.Shape.Mode == driver.Exclusive
	return joined, g.promote()
}

// Leave takes out a waiter that gives up. If it was the head, next is the new
// one, or nil. The place in the store's queue passes on to the next head if
// that one's shape is the same; otherwise it is returned, to be withdrawn if it
// was Sent. A waiter that has left already changes nothing.
func (g *Gate) Leave(w *Waiter) (next *Waiter, withdraw Place) {
	if !w.in {
		return nil, Place{}
	}
	first := w == g.first
	g.remove(w)
	if !first || g.shut {
		return nil, Place{}
	}
	if g.first == nil || g.first.Shape != g.place.Shape {
		withdraw = g.Renounce()
		g.told = false
	}
	return g.promote(), withdraw
}

// promote makes the first waiter the head.
func (g *Gate) promote() *Waiter {
	if g.first == nil || g.shut {
		return nil
	}
	g.first.Role = Head
	return g.first
}
