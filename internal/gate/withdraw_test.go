package gate

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/explore"
)

// This file explores the end of an acquire that fails, or whose hold is
// released: requests of the owner may still be on their way, and arrive before
// the withdrawal, after it, or never. The withdrawal is repeated until the
// store confirms it; from then on the owner must have nothing in the store, for
// good (P6). Somebody else holds the name at first, so that a place turns into
// a hold by itself too.

// withdrawing is a state.
type withdrawing struct {
	store     store
	asked     int       // requests made
	requests  []request // on their way
	done      bool      // the acquire has ended: no more requests
	knows     bool      // the client has been told that it holds: it releases, rather than withdraws
	attempt   uint8     // none, underWay or answered
	confirmed bool
}

const (
	none uint8 = iota
	underWay
	answered
)

const owner, other = "o", "p"

// withdrawal is the model, and how it is broken.
type withdrawal struct {
	requests     int  // at most
	forgetful    bool // the store remembers no farewell
	onlyUnknown  bool // it does only if it had nothing to forget
	onlyWithdraw bool // it does of what is withdrawn, not of what is released
	lostIsDone   bool // the client takes no answer for a confirmation
}

func (m withdrawal) explore() explore.Model[*withdrawing, string] {
	w := &withdrawing{}
	w.store.ask(request{owner: other})
	return explore.Model[*withdrawing, string]{
		Start: w,
		Key: func(w *withdrawing) string {
			b := append(w.store.key(nil), bits(w.done, w.knows, w.confirmed), byte(w.asked), w.attempt)
			for _, r := range w.requests {
				b = append(b, bits(r.queue))
			}
			return string(b)
		},
		Next: m.next,
		Check: func(w *withdrawing) error {
			if w.confirmed && (w.store.holding(owner) || w.store.queued(owner)) {
				return errors.New("P6: withdrawn, and back in the store")
			}
			return nil
		},
		End: func(w *withdrawing) error {
			if !w.confirmed {
				return errors.New("the withdrawal ended unconfirmed")
			}
			return nil
		},
	}
}

func (m withdrawal) next(w *withdrawing) (steps []explore.Step[*withdrawing]) {
	add := func(name string, change func(*withdrawing)) {
		to := *w
		to.store, to.requests = w.store.clone(), slices.Clone(w.requests)
		change(&to)
		steps = append(steps, explore.Step[*withdrawing]{Name: name, To: &to})
	}
	if w.store.holding(other) {
		add("the other releases", func(w *withdrawing) { w.store.forget(other, false) })
	}
	if !w.done {
		if w.asked < m.requests {
			for _, queue := range []bool{false, true} {
				add(map[bool]string{false: "try", true: "enqueue"}[queue], func(w *withdrawing) {
					w.asked++
					w.requests = append(w.requests, request{owner, driver.Exclusive, queue})
				})
			}
		}
		add("give up", func(w *withdrawing) { w.done = true })
	}
	for i, r := range w.requests {
		take := func(w *withdrawing) { w.requests = slices.Delete(w.requests, i, i+1) }
		add("a request is lost", take)
		add("a request arrives", func(w *withdrawing) {
			take(w)
			w.store.ask(r)
		})
		if !w.done {
			add("a request arrives and is answered", func(w *withdrawing) {
				take(w)
				if w.store.ask(r) == granted {
					w.done, w.knows = true, true // works, and releases
				}
			})
		}
	}
	switch {
	case !w.done || w.confirmed:
	case w.attempt == none:
		add("withdraw", func(w *withdrawing) { w.attempt = underWay })
	case w.attempt == underWay:
		add("the withdrawal arrives", func(w *withdrawing) {
			w.attempt = answered
			known := w.store.holding(owner) || w.store.queued(owner)
			w.store.forget(owner, !m.forgetful && !(m.onlyUnknown && known) && !(m.onlyWithdraw && w.knows))
		})
	case w.attempt == answered:
		add("the withdrawal is confirmed", func(w *withdrawing) { w.confirmed = true })
	}
	if w.attempt != none && !w.confirmed {
		add("the withdrawal is lost", func(w *withdrawing) { w.attempt, w.confirmed = none, m.lostIsDone })
	}
	return steps
}

func TestWithdrawal(t *testing.T) {
	withdrawal{requests: 3}.explore().Holds(t, 10_000)
}

func TestWithdrawalFinds(t *testing.T) {
	const back = "back in the store"
	for name, m := range map[string]withdrawal{
		"the store remembers nothing":                       {requests: 1, forgetful: true},
		"it remembers only what it did not know":            {requests: 2, onlyUnknown: true},
		"it remembers what is withdrawn, not what is freed": {requests: 2, onlyWithdraw: true},
		"no answer is taken for a confirmation":             {requests: 1, lostIsDone: true},
	} {
		t.Run(name, func(t *testing.T) { m.explore().Breaks(t, 10_000, back) })
	}
}
