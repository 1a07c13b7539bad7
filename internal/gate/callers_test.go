package gate

import (
	"errors"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// This file is the goroutines of the model in model_test.go: what each does,
// one function for what package holdfast does at a time.

// actor is a caller in a world: what the steps are done by.
type actor struct {
	m *model
	w *world
	c *client
	*caller
	self int
}

// callerSteps are those of one goroutine.
func (m *model) callerSteps(w *world, i, j int, add func(who, what string, change func(*world))) {
	a := &w.clients[i].callers[j]
	do := func(what string, change func(a actor)) {
		add(a.Ref.(string), what, func(w *world) {
			c := &w.clients[i]
			change(actor{m, w, c, &c.callers[j], j})
		})
	}
	if a.at > idle && a.at < holding && !a.cancelled {
		do(cancelled, func(a actor) { a.cancelled = true })
	}
	switch a.at {
	case idle:
		// Of those who are alike it makes no difference which comes first.
		if !slices.ContainsFunc(w.clients[i].callers[:j], func(in caller) bool {
			return in.at == idle && in.Shape == a.Shape && in.Try == a.Try
		}) {
			do("enters", actor.enter)
		}
	case behind:
		if a.news || a.cancelled {
			do("looks at its role", actor.look)
		}
	case leaving:
		do("leaves", actor.giveUp)
	case woken:
		do("begins", actor.begin)
	case ready:
		if a.cancelled {
			do("gives up", actor.giveUp)
		} else {
			do("asks", actor.ask)
		}
	case calling:
		r := request{a.owner, a.Shape.Mode, a.step == enqueue}
		do("reaches the store", func(a actor) { a.reply, a.at = a.w.store.ask(r), replied })
		if a.cancelled || w.losses > 0 {
			do("loses its request", func(a actor) {
				a.lose()
				a.hear(doubtful)
			})
			if len(w.strays) < m.maxStray {
				do("no longer waits for its request to arrive", func(a actor) {
					a.lose()
					a.w.strays = append(a.w.strays, r)
					a.hear(doubtful)
				})
			}
		}
	case replied:
		do("hears", func(a actor) { a.hear(a.reply) })
		if a.cancelled || w.losses > 0 {
			do("loses its answer", func(a actor) {
				a.lose()
				a.hear(doubtful)
			})
		}
	case waiting:
		m.waitSteps(w, a, do)
	case holding:
		do("stops", actor.stop)
	case ending:
		do("passes its hold on, or not", actor.passOn)
	case freeing:
		do("releases", actor.release)
	}
}

// waitSteps are those of one that waits for the store's push.
func (m *model) waitSteps(w *world, a *caller, do func(string, func(actor))) {
	switch queued := w.store.queued(a.owner); {
	case m.noQueue:
		do("asks again", func(a actor) { a.at = calling })
		return
	case w.store.holding(a.owner):
		do("is granted", func(a actor) { a.hear(granted) })
	case !queued:
		do("has lost its place", func(a actor) { a.hear(held) })
	case w.polls > 0:
		do("polls", func(a actor) {
			a.w.polls--
			a.hear(held)
		})
	}
	if a.cancelled {
		do("stops waiting", func(a actor) { a.hear(held) })
	}
}

// lose counts a lost message.
func (a actor) lose() {
	if !a.cancelled {
		a.w.losses--
	}
}

// enter is acquisition.enter.
func (a actor) enter() {
	if err := a.c.gate.Enter(&a.Waiter); err != nil {
		a.w.err = err
		return
	}
	switch a.Role {
	case Head:
		a.at = woken
	case Behind:
		a.at = behind
	case Held:
		a.at = gaveUp
		return
	}
	a.c.order = append(a.c.order, a.self)
}

// look is the first half of acquisition.run.
func (a actor) look() {
	switch a.Role {
	case Joined, Passed:
		a.at = holding
	case Held:
		a.at = gaveUp
	case Head:
		a.at = woken
	case Behind:
		if a.m.looksTwice {
			a.at = leaving
			return
		}
		a.giveUp()
	}
}

// begin is acquisition.begin.
func (a actor) begin() {
	g := &a.c.gate
	a.contact = g.Told()
	sent := a.place().Sent
	switch {
	case a.Try && sent:
		a.withdraw(g.Renounce())
	case !a.m.noQueue && !a.Try && (sent || g.Hot() || g.Told()):
		a.step = enqueue
	}
	a.at = ready
}

func (a actor) place() Place {
	return a.c.gate.Place(func() string { return a.w.unused(a.Ref.(string)[:1]) })
}

// ask is acquisition.ask, as far as the request.
func (a actor) ask() {
	a.owner = a.place().Owner
	a.c.gate.Sent()
	a.at = calling
	if a.step == await {
		a.at = waiting
	}
}

// hear is what follows an answer: the rest of acquisition.ask, accept and
// again.
func (a actor) hear(r reply) {
	g := &a.c.gate
	a.reply = noReply
	if a.step == tryOnce && (r == held || r == void || r == doubtful && a.m.doubtIsNo) {
		g.Unsent()
	}
	switch {
	case r == granted && a.cancelled && a.m.dropGrant:
		g.Unsent()
		a.giveUp()
	case r == granted:
		a.take()
	case a.cancelled:
		a.giveUp()
	case r == held:
		a.told()
	case r == void:
		a.withdraw(g.Renounce())
		a.retry()
	case !a.contact || a.Try:
		a.giveUp()
	default:
		a.retry()
	}
}

func (a actor) retry() {
	a.contact = true
	a.at = ready
	if a.m.noQueue {
		a.withdraw(a.c.gate.Renounce())
		return
	}
	a.step = enqueue
}

// told is acquisition.told, and what again does after it.
func (a actor) told() {
	a.contact = true
	a.c.refuse(a.c.gate.Tell(), !a.m.forgetsTried)
	switch {
	case a.Try:
		a.giveUp()
		return
	case a.step == enqueue || a.m.noQueue:
		a.step = await
	default:
		a.step = enqueue
	}
	a.at = ready
}

// take is acquisition.take.
func (a actor) take() {
	for _, other := range a.c.order {
		if other == a.self {
			break
		}
		a.w.err = errors.New("P8: served before one that came earlier")
	}
	if a.m.passes > 0 && a.Shape.Mode == driver.Exclusive && a.c.gate.Behind() {
		a.c.turn, a.c.left = a.self, a.m.passes
		a.c.refuse(a.c.gate.Shut(), true)
	}
	joined, next := a.c.gate.Grant()
	a.at, a.hold, a.users = holding, a.self, 1
	a.c.leaves(a.self)
	for _, w := range joined {
		n := a.c.index(w)
		j := &a.c.callers[n]
		j.hold, j.owner, j.news = a.self, a.owner, true
		a.users++
		a.c.leaves(n)
	}
	if next != nil {
		a.c.callers[a.c.index(next)].news = !a.m.noWakeGrant
	}
}

// giveUp is acquisition.leave.
func (a actor) giveUp() {
	g := &a.c.gate
	if a.m.noQueue && a.Role == Head {
		a.withdraw(g.Renounce())
	}
	before, told, head := g.place, g.told, g.First() == &a.Waiter
	next, place := g.Leave(&a.Waiter)
	a.c.leaves(a.self)
	a.at = gaveUp
	switch {
	case a.m.anyShape && place.Sent && next != nil:
		g.place = Place{Owner: place.Owner, Shape: next.Shape, Sent: true}
	case a.m.noInherit && next != nil:
		a.withdraw(place)
		a.withdraw(g.Renounce())
	default:
		a.withdraw(place)
	}
	if next != nil {
		a.c.callers[a.c.index(next)].news = !a.m.noWakeLeave
		if head && before.Owner != "" && next.Shape == before.Shape && (g.place != before || g.told != told) {
			a.w.err = errors.New("P8: a place is not passed on")
		}
	}
}

// leaves takes a caller out of our own books of who is at the gate.
func (c *client) leaves(n int) {
	c.order = slices.DeleteFunc(c.order, func(in int) bool { return in == n })
}

// refuse wakes tries that need not wait.
func (c *client) refuse(tries []*Waiter, wake bool) {
	for _, w := range tries {
		c.callers[c.index(w)].news = wake
		c.leaves(c.index(w))
	}
}

// withdraw is Client.withdrawPlace.
func (a actor) withdraw(p Place) {
	if p.Owner == "" || !p.Sent || a.m.noWithdraw {
		return
	}
	a.c.undoing = append(a.c.undoing, p.Owner)
}

// stop is the first part of Lease.Release; the last lease of a hold frees the name.
func (a actor) stop() {
	a.at = done
	taker := &a.c.callers[a.hold]
	if taker.users--; taker.users > 0 {
		return
	}
	if a.at = ending; a.c.turn != a.hold {
		a.release()
	}
}

// passOn is Client.passOn.
func (a actor) passOn() {
	c := a.c
	a.at = freeing
	if c.turn != a.hold || c.left == 0 {
		return
	}
	shape := c.callers[a.hold].Shape
	if a.m.passesToAll && c.gate.First() != nil {
		shape = c.gate.First().Shape
	}
	w := c.gate.Pass(shape)
	if w == nil {
		return
	}
	n := c.index(w)
	if c.order[0] != n {
		a.w.err = errors.New("P8: passed on to one that came later")
	}
	c.leaves(n)
	next := &c.callers[n]
	next.owner, next.hold, next.users, next.news = a.owner, n, 1, true
	c.turn, a.at = n, done
	c.left--
	if a.m.frees {
		a.w.store.forget(next.owner, true)
	}
}

// release is what remains of Lease.Release for a hold that is not passed on.
func (a actor) release() {
	a.at = done
	a.w.store.forget(a.owner, !a.m.forgetsFreed)
	if a.c.turn == a.hold && !a.m.staysShut {
		a.c.open()
	}
}

// open is Client.endTurn.
func (c *client) open() {
	c.turn = -1
	if next := c.gate.Open(); next != nil {
		c.callers[c.index(next)].news = true
	}
}
