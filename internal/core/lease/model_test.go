package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/explore"
)

// This file explores a lease beside a store that keeps its hold by its own clock. Requests and
// answers take time or get lost, the client gives attempts up, holders renew by hand while the
// background does, an operator may break the hold. Instants are counted from now, so that there are
// finitely many states although time never ends: a reply may come after any number of ticks.

const (
	tick      = 20 * time.Millisecond // of the client's clock
	modelTTL  = 5 * tick
	margin    = tick
	maxAge    = modelTTL + tick   // beyond it ages make no difference
	runsAhead = tick / 4          // the store's clock gains at most this in a tick: 80 ms of trust are 100 ms there
	renewing  = 2 * tick          // RenewEvery
	never     = time.Duration(-1) // RenewEvery
	claim     = modelTTL - tick   // what a store grants first to a waiter
)

// call is a renewal under way.
type call struct {
	at   uint8         // none, sent, kept or gone
	dead bool          // the client no longer waits for the reply
	age  time.Duration // since it was sent
}

const (
	none uint8 = iota
	sent       // on its way to the store
	kept       // the store has started the TTL again
	gone       // the store had no such hold
)

// world is a state: the lease, as the client keeps it, and the store.
type world struct {
	m     Machine
	over  bool          // the client knows its end
	calls [2]call       // the one of the background, and one by hand
	left  time.Duration // of the hold in the store, by the store's clock
	cut   bool          // an operator has broken the hold
	past  bool          // the lease was at its end once: it must never be trusted again
	moved bool          // the trust deadline has moved away after the end of renewals
}

// store is a model of a lease, and the mistakes that can be planted in it.
type store struct {
	every      time.Duration
	valid      time.Duration // of the grant
	margin     time.Duration
	ends       bool // renewals may end for good
	responsive bool // no call is lost or takes longer than a tick, and the client is prompt
	renewed    func(w *world, c call, err error)
}

// renewed is what the client does with the outcome of a renewal.
func renewed(w *world, c call, err error) {
	if w.over {
		return
	}
	switch {
	case err == nil:
		w.m.Renewed(0, driver.Instant(-c.age), modelTTL)
	case driver.Gone(err):
		w.m.Gone()
	default:
		w.m.Failed(0)
	}
	w.over = w.m.State() > Doubt
}

func (s *store) model() explore.Model[world, world] {
	w := world{m: Start(0, 0, s.valid, s.valid < modelTTL, &Pace{TTL: modelTTL, Every: s.every, Margin: s.margin}),
		left: s.valid}
	return explore.Model[world, world]{
		Start: w,
		Key:   s.key,
		Next:  s.next,
		Check: s.check,
	}
}

// key gives all ends that are right, or wrong, in the same way the same key: see next.
func (s *store) key(w world) world {
	if w.over {
		return world{over: true, moved: w.moved, m: Machine{state: w.m.state}}
	}
	return w
}

// trusts reports whether Trusted would return true.
func (w world) trusts() bool { return !w.over && w.m.Trusted(0) }

func (s *store) check(w world) error {
	switch {
	case w.trusts() && w.past:
		return errors.New("a lease that was at its end is trusted")
	case w.trusts() && w.left <= 0:
		return errors.New("trusted, and the store's hold is over")
	case w.moved:
		return errors.New("the trust deadline has moved, although renewals have ended")
	case s.responsive && !w.trusts() && w.m.State() != Released:
		return errors.New("lost, although the store answers")
	}
	return nil
}

// next returns the steps. A step that checks the lease notes its end, whatever the model under test
// makes of it. Once the client knows the end it ignores all events, so nothing can be found behind it.
func (s *store) next(w world) (steps []explore.Step[world]) {
	if w.over {
		return nil
	}
	add := func(name string, change func(*world)) {
		to := w
		change(&to)
		to.past = to.past || to.m.State() == Lost
		to.moved = w.m.Final() && to.m.until > w.m.until
		steps = append(steps, explore.Step[world]{Name: name, To: to})
	}
	at, due := w.m.RenewAt()
	due = due && at <= 0 && !w.over
	if !s.responsive || !due && w.calls[0].age < tick {
		add("a tick", func(w *world) { w.tick(0) })
		add("a tick, the store's clock faster", func(w *world) { w.tick(runsAhead) })
	}
	if due && w.calls[0].at == none {
		add("renew", func(w *world) {
			if w.m.Send(0) {
				w.calls[0] = call{at: sent}
			}
		})
	}
	for i, c := range w.calls {
		s.callSteps(w, i, c, add)
	}
	if !w.over {
		add("look", func(w *world) { w.over = !w.m.Trusted(0) })
	}
	if s.responsive {
		return steps
	}
	if w.trusts() {
		add("release", func(w *world) {
			w.m.Release(0)
			w.over = true
		})
		if w.calls[1].at == none {
			add("renew by hand", func(w *world) { w.calls[1] = call{at: sent} })
		}
		if s.ends && !w.m.Final() {
			add("renewals end", func(w *world) { w.m.Finish() })
		}
	}
	if !w.cut && w.left > 0 {
		add("break", func(w *world) { w.cut = true })
	}
	return steps
}

// callSteps are the steps of a renewal under way.
func (s *store) callSteps(w world, i int, c call, add func(string, func(*world))) {
	name := [...]string{"the renewal", "the other renewal"}[i]
	unknown := errors.New("outcome unknown")
	end := func(err error) func(*world) {
		return func(w *world) {
			w.calls[i] = call{}
			if !c.dead {
				s.renewed(w, c, err)
			}
		}
	}
	switch c.at {
	case sent:
		add(name+" reaches the store", func(w *world) {
			if w.calls[i].at = gone; w.left > 0 && !w.cut {
				w.calls[i].at = kept
				w.left = modelTTL
			}
			if c.dead {
				w.calls[i] = call{}
			}
		})
	case kept:
		add(name+" is answered: kept", end(nil))
	case gone:
		add(name+" is answered: gone", end(driver.ErrNotHeld))
	}
	if c.at != none && !s.responsive {
		add(name+" is lost", end(unknown))
		if !c.dead && c.at == sent {
			// It can still take effect: the reply alone is lost.
			add(name+" is given up", func(w *world) {
				w.calls[i] = call{at: sent, dead: true}
				s.renewed(w, c, unknown)
				if i == 0 && w.calls[1].at == none {
					// Another attempt may be made meanwhile.
					w.calls[0], w.calls[1] = w.calls[1], w.calls[0]
				}
			})
		}
	}
}

// tick lets time pass: all instants come nearer.
func (w *world) tick(ahead time.Duration) {
	w.m.until = max(w.m.until.Add(-tick), 0)
	w.past = w.past || w.m.until == 0
	w.m.renewAt = max(w.m.renewAt.Add(-tick), 0)
	w.m.since = max(w.m.since.Add(-tick), -driver.Instant(maxAge))
	w.left = max(w.left-tick-ahead, 0)
	for i := range w.calls {
		if c := &w.calls[i]; c.at != none && !c.dead {
			c.age = min(c.age+tick, maxAge)
		}
	}
}

// TestModel: a trusted lease has its hold in the store, and one that was at its end is never
// trusted again (P1, P2). While the store answers, a lease with renewal is never lost. A lease that
// began with its whole TTL is one that began with a claim, after the first renewal.
func TestModel(t *testing.T) {
	for name, s := range map[string]store{
		"from a claim, then never renewed":         {every: never},
		"from a claim, then renewed for some time": {every: renewing, ends: true},
		"while the store answers":                  {every: renewing, responsive: true},
	} {
		t.Run(name, func(t *testing.T) {
			s.valid, s.margin, s.renewed = claim, margin, renewed
			s.model().Holds(t, 400_000)
		})
	}
}

// TestModelFinds: the checks find each way in which a lease could be wrong.
func TestModelFinds(t *testing.T) {
	good := store{every: renewing, valid: modelTTL, margin: margin, renewed: renewed}
	for _, c := range []struct {
		name, want string
		broken     func(*store)
	}{
		{"counted from the reply", "the store's hold is over", func(s *store) {
			s.renewed = func(w *world, c call, err error) {
				c.age = 0
				renewed(w, c, err)
			}
		}},
		{"no margin", "the store's hold is over", func(s *store) { s.margin = 1 }},
		{"revived when nobody has looked", "at its end is trusted", func(s *store) {
			s.renewed = func(w *world, c call, err error) {
				if err == nil && w.m.state <= Doubt {
					w.m.state = Held
					w.m.extend(0, driver.Instant(-c.age), modelTTL)
					return
				}
				renewed(w, c, err)
			}
		}},
		{"extended after the end of renewals", "the trust deadline has moved", func(s *store) {
			s.ends = true
			s.renewed = func(w *world, c call, err error) {
				if err == nil && w.m.Trusted(0) {
					w.m.extend(0, driver.Instant(-c.age), modelTTL)
				}
				renewed(w, c, err)
			}
		}},
		{"renewed too late", "although the store answers",
			func(s *store) { s.responsive, s.every = true, 4*tick }},
		{"a success that is not taken in", "although the store answers", func(s *store) {
			s.responsive = true
			s.renewed = func(w *world, _ call, _ error) { w.m.Failed(0) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good
			c.broken(&s)
			s.model().Breaks(t, 400_000, c.want)
		})
	}
}
