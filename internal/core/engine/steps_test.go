package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/internal/record"
	"github.com/holdfastlock/holdfast/internal/test/explore"
)

// next returns all steps out of a world.
func (w *world) next() []explore.Step[*world] {
	var steps []explore.Step[*world]
	can := func(name string, do func(*world)) {
		to := w.clone()
		do(to)
		steps = append(steps, explore.Step[*world]{Name: name, To: to})
	}
	if w.closed {
		can("the work under all leases has stopped", func(w *world) { w.closed = false; w.step(engine.Event{Kind: engine.WorkStopped}) })
	}
	for i := range w.people {
		w.personSteps(i, can)
	}
	for i, op := range w.ops {
		w.operationSteps(i, op, can)
	}
	slow := 0
	for i := range w.strays {
		if w.strays[i].slow {
			slow++
		}
		can(fmt.Sprintf("the late request of %s arrives", w.strays[i].grant.Owner), func(w *world) {
			s := w.strays[i]
			w.strays = slices.Delete(w.strays, i, i+1)
			w.execute(s.do, &s.grant, s.sentAt)
		})
	}
	w.otherSteps(can)
	at, due := w.e.Next()
	if due && at <= w.now {
		can("the timer fires", func(w *world) {
			w.step(engine.Event{Kind: engine.Ticked})
			if at, due := w.e.Next(); due && at <= w.now {
				w.err = errors.New("P2: the timer has fired, and what was due is still to be done")
			}
		})
		return steps // it is late by no more than all else that can happen at this instant
	}
	if w.patient && len(steps) > slow {
		return steps
	}
	if at, ok := w.later(); ok && w.times != 0 {
		can(fmt.Sprintf("%v pass", at.Sub(w.now)), func(w *world) {
			w.now = at
			w.times--
		})
	}
	return steps
}

// later returns the next instant at which anything is due.
func (w *world) later() (next driver.Instant, ok bool) {
	sooner := func(at driver.Instant) {
		if at > w.now && (!ok || at < next) {
			next, ok = at, true
		}
	}
	if at, due := w.e.Next(); due {
		sooner(at)
	}
	for _, p := range w.people {
		if p.phase == pausing || p.phase == sent && p.action.Do == engine.Await {
			sooner(p.until)
		}
		if p.phase == working && p.works > 0 {
			sooner(p.begun.Add(p.works))
		}
	}
	for _, r := range w.names {
		for i := range r.Holds {
			sooner(r.Holds[i].Expires)
		}
	}
	sooner(w.memory.Opens)
	return next, ok
}

// personSteps are what a caller's goroutine, its request and its user can do.
func (w *world) personSteps(i int, can func(string, func(*world))) {
	p := w.people[i]
	on := func(what string, do func(*world, *person)) {
		can(fmt.Sprintf("%d %s", i, what), func(w *world) { do(w, w.people[i]) })
	}
	switch p.phase {
	case out:
		on("comes", func(w *world, p *person) {
			w.arrived = append(w.arrived, i)
			w.callerStep(p, engine.Event{Kind: engine.Entered})
		})
	case asleep:
		if p.woken {
			on("wakes up", func(w *world, p *person) {
				kind := engine.Woken
				if p.cancelled {
					kind = engine.Cancelled
				}
				p.woken = false
				w.callerStep(p, engine.Event{Kind: kind})
			})
		}
		if p.cancelled {
			on("gives up", func(w *world, p *person) { w.callerStep(p, engine.Event{Kind: engine.Cancelled}) })
		}
	case pausing:
		switch {
		case p.cancelled || w.now >= p.until:
			on("goes on", func(w *world, p *person) { w.callerStep(p, engine.Event{Kind: engine.Rested, Ended: p.ended()}) })
		case p.woken:
			on("goes on at once", func(w *world, p *person) { p.woken = false; w.callerStep(p, engine.Event{Kind: engine.Woken}) })
		}
	case sent:
		w.requestSteps(p, on)
	case replied:
		on("gets its answer", (*world).deliver)
	case working:
		if p.works > 0 && w.now < p.begun.Add(p.works) {
			return
		}
		on("releases", func(w *world, p *person) { w.callerStep(p, engine.Event{Kind: engine.Released}) })
	case done:
		if !p.again {
			on("releases again", func(w *world, p *person) {
				p.again = true
				if next := w.step(engine.Event{Kind: engine.Released, Caller: p.c}); next.Do != engine.Done {
					w.err = fmt.Errorf("P4: a second release of caller %d does %d", i, next.Do)
				}
			})
		}
	case stopping:
		on("has stopped", func(w *world, p *person) { w.callerStep(p, engine.Event{Kind: engine.Stopped}) })
	}
	if waits := p.phase == asleep || p.phase == sent && p.action.Do != engine.GiveBack || p.phase == pausing; waits && !p.cancelled && w.cancels > 0 {
		on("is cancelled", func(w *world, p *person) { p.cancelled = true; w.cancels-- })
	}
}

func (p *person) ended() error {
	if p.cancelled {
		return errCancelled
	}
	return nil
}

var errCancelled = errors.New("cancelled")

// requestSteps are what can become of a request.
func (w *world) requestSteps(p *person, on func(string, func(*world, *person))) {
	if p.action.Do == engine.Await {
		r := w.names[p.name]
		if r.Held(p.action.Grant.Owner) != nil {
			on("is told of its grant", func(w *world, p *person) { w.execute1(p) })
		}
		if p.cancelled || w.now >= p.until {
			on("polls", func(w *world, p *person) { p.phase, p.reply = replied, reply{err: driver.ErrHeld} })
		}
		return
	}
	on("is heard", func(w *world, p *person) { w.execute1(p) })
	if w.noQueue && w.lates > 0 && p.action.Do == engine.Try {
		// A quorum gives some votes for a request that it refuses, and takes them back aside.
		on("is heard, and what is refused is taken back later", func(w *world, p *person) {
			if w.execute1(p); errors.Is(p.reply.err, driver.ErrHeld) {
				w.lates--
				w.late1(driver.Grant{Request: p.action.Grant.Request})
			}
		})
	}
	if w.fails > 0 {
		on("is refused by a store out of order", func(w *world, p *person) {
			w.fails--
			p.phase, p.reply = replied, reply{err: errStore, renewal: driver.Renewal{Err: errStore}}
		})
	}
	if w.losses > 0 || p.cancelled && p.action.Do != engine.GiveBack {
		lost := func(w *world, p *person) {
			if !p.cancelled {
				w.losses--
			}
			err := driver.Uncertain(errStore)
			p.phase, p.reply = replied, reply{grant: driver.Grant{Request: p.action.Grant.Request}, err: err, renewal: driver.Renewal{Err: err}}
		}
		on("is heard, and the answer is lost", func(w *world, p *person) { w.execute1(p); lost(w, p) })
		on("is late, and nobody waits for its answer", func(w *world, p *person) {
			w.strays = append(w.strays, stray{do: p.action.Do, grant: p.action.Grant, sentAt: p.sentAt})
			lost(w, p)
		})
	}
}

// late1 lets a withdrawal arrive at any time later.
func (w *world) late1(g driver.Grant) {
	g.MinHold = 0
	w.strays = append(w.strays, stray{do: engine.GiveBack, grant: g, sentAt: w.now, slow: true})
}

// execute1 lets the store execute a caller's request.
func (w *world) execute1(p *person) {
	p.phase, p.reply = replied, w.execute(p.action.Do, &p.action.Grant, p.sentAt)
}

// execute is what the store does. Each request settles the record first, and last.
func (w *world) execute(do engine.Do, g *driver.Grant, sentAt driver.Instant) (out reply) {
	r, rules := w.settled(g.Name)
	defer r.Settle(w.now, rules)
	switch do {
	case engine.Try, engine.Enqueue:
		if slices.Contains(w.refused, g.Owner) {
			return reply{err: driver.ErrNotHeld}
		}
		h, err := r.Ask(g.Request, "", do == engine.Enqueue, sentAt, w.now, rules)
		if err != nil {
			return reply{err: err}
		}
		return reply{grant: r.Grant(h)}
	case engine.Await:
		h := r.Held(g.Owner)
		if h == nil {
			return reply{err: driver.ErrHeld} // it has ended meanwhile
		}
		return reply{grant: r.Grant(h)}
	case engine.Confirm:
		return reply{renewal: w.renew(r, g, sentAt)}
	case engine.GiveBack:
		return reply{err: w.release(r, rules, g)}
	}
	panic(do)
}

func (w *world) settled(name string) (*record.Record, *record.Rules) {
	rules := &record.Rules{Poll: poll, Last: &w.last, Granted: func(p *record.Place) {
		if r := w.names[name]; p.Owner == "stranger" {
			h := r.Held(p.Owner)
			w.trusting = h.Since.Add(h.Valid)
		}
	}}
	if w.setup.forgets > 0 {
		if _, begun := w.memory.Closed(w.present(), w.now); !begun {
			since := driver.Instant(0) // the first life of a store that has been up for long
			if w.life > 0 {
				since = w.now
			}
			w.memory = w.memory.Begin(w.present(), since, w.now, life.Rules{MaxTTL: ttl})
		}
		rules.Opens = w.memory.Opens
	}
	r := w.names[name]
	r.Settle(w.now, rules)
	return r, rules
}

// present is the life that the store has now.
func (w *world) present() string { return fmt.Sprint("life ", w.life) }

func (w *world) renew(r *record.Record, g *driver.Grant, sentAt driver.Instant) driver.Renewal {
	h := r.Renew(g.Owner, sentAt, w.now)
	if h == nil {
		return driver.Renewal{Err: w.gone(g.Owner)}
	}
	h.HandedOver(g)
	return driver.Renewal{Since: h.Since, Valid: h.Valid}
}

// gone is why an owner has no hold.
func (w *world) gone(owner string) error {
	if slices.Contains(w.broken, owner) {
		return driver.ErrBroken
	}
	return driver.ErrNotHeld
}

func (w *world) release(r *record.Record, rules *record.Rules, g *driver.Grant) error {
	held := r.Release(g.Owner, g.MinHold, g.Token, w.now, rules)
	if (g.Token == 0 || g.Stray) && !slices.Contains(w.refused, g.Owner) {
		w.refused = append(w.refused, g.Owner)
	}
	if held || g.Token == 0 {
		return nil
	}
	return w.gone(g.Owner)
}

// deliver gives a caller the answer to its request.
func (w *world) deliver(p *person) {
	ev := engine.Event{Grant: p.reply.grant, Err: p.reply.err, Renewal: p.reply.renewal, Ended: p.ended()}
	switch p.action.Do {
	case engine.Confirm:
		ev.Kind = engine.Confirmed
	case engine.GiveBack:
		ev.Kind = engine.GivenBack
		p.released++
	default:
		ev.Kind = engine.Answered
	}
	w.callerStep(p, ev)
}

// callerStep is an event of a caller's. What it does next is its phase.
func (w *world) callerStep(p *person, ev engine.Event) {
	ev.Caller = p.c
	next := w.step(ev)
	p.action, p.reply = next, reply{}
	p.sentAt = w.now
	p.until = w.now.Add(next.For)
	switch next.Do {
	case engine.Sleep:
		p.phase = asleep
	case engine.Try, engine.Enqueue, engine.Await, engine.Confirm, engine.GiveBack:
		p.phase = sent
	case engine.Pause:
		p.phase = pausing
	case engine.Yes:
		w.got(p)
	case engine.No:
		p.phase = failed
		w.left(p)
	case engine.Stop:
		p.phase = stopping
	case engine.Done:
		p.phase = done
	default:
		w.err = fmt.Errorf("caller %v is told %d by event %d", p.c.Ref, next.Do, ev.Kind)
	}
}

// got notes that a caller has its lease: the first who came of all that wait for the name (P8).
func (w *world) got(p *person) {
	p.phase, p.begun = working, w.now
	for _, i := range w.arrived {
		first := w.people[i]
		if first == p {
			break
		}
		if first.name != p.name || first.cancelled || first.over || first.c.Held() {
			continue
		}
		if first.phase < working && first.mode == p.mode && first.try == p.try && !p.try {
			w.err = fmt.Errorf("P8: caller %v, which came before, is still %s when %v gets the name", first.c.Ref, phases[first.phase], p.c.Ref)
		}
		break
	}
	w.left(p)
	g := w.e.Grant(p.c)
	if g.Token <= w.tokens[p.name] && p.mode == driver.Exclusive {
		w.err = fmt.Errorf("P3: caller %v has token %d after %d", p.c.Ref, g.Token, w.tokens[p.name])
	}
	w.tokens = maps.Clone(w.tokens)
	w.tokens[p.name] = g.Token
	if since, before := w.granted[g.Owner]; !before {
		w.granted = maps.Clone(w.granted)
		w.granted[g.Owner] = p.c.Taken()
	} else if d := p.c.Taken().Sub(since); p.mode == driver.Exclusive && d >= engine.CohortAlone {
		w.err = fmt.Errorf("P8: the hold is handed over to caller %v after %v", p.c.Ref, d)
	}
	if slices.Contains(w.told, g.Owner) && p.c.Held() {
		w.err = fmt.Errorf("P2: caller %v gets a hold of which the store has told that it is broken", p.c.Ref)
	}
}

func (w *world) left(p *person) {
	w.arrived = slices.DeleteFunc(w.arrived, func(i int) bool { return w.people[i] == p })
}

// step feeds an event to the engine and carries out its effects.
func (w *world) step(ev engine.Event) engine.Action {
	ev.Now = w.now
	next := w.e.Step(&ev)
	for _, f := range w.e.Effects() {
		switch f.Kind {
		case engine.Wake:
			w.people[f.Caller.Ref.(int)].woken = true
		case engine.End:
			p := w.people[f.Caller.Ref.(int)]
			if p.over {
				w.err = fmt.Errorf("P2: caller %v is told twice that its lease is over", f.Caller.Ref)
			}
			p.over = true
			if p.works > 0 && !errors.Is(f.Err, engine.ErrReleased) && !errors.Is(f.Err, engine.ErrMaxHold) {
				w.err = fmt.Errorf("P2: caller %v loses its lease before a store that answers: %w", f.Caller.Ref, f.Err)
			}
		case engine.Renew:
			w.ops = append(w.ops, &operation{batch: f.Batch, renew: true})
		case engine.Withdraw:
			w.ops = append(w.ops, &operation{batch: f.Batch})
		default:
			w.err = fmt.Errorf("unexpected effect %d", f.Kind)
		}
	}
	return next
}

// operationSteps are what can become of a batch in the background.
func (w *world) operationSteps(i int, op *operation, can func(string, func(*world))) {
	what := "withdrawal"
	if op.renew {
		what = "renewal"
	}
	if op.executed {
		can("the answer to a "+what+" arrives", func(w *world) {
			op := w.ops[i]
			w.ops = slices.Delete(w.ops, i, i+1)
			if op.renew {
				w.step(engine.Event{Kind: engine.BatchRenewed, Batch: op.batch, Renewals: op.renewals})
			} else {
				w.step(engine.Event{Kind: engine.BatchWithdrawn, Batch: op.batch, Errs: op.errs})
			}
		})
		return
	}
	can("a "+what+" is heard", func(w *world) {
		op := w.ops[i]
		op.executed = true
		for j := range op.batch.Grants {
			g := &op.batch.Grants[j]
			r, rules := w.settled(g.Name)
			if op.renew {
				op.renewals = append(op.renewals, w.renew(r, g, w.now))
			} else {
				op.errs = append(op.errs, w.release(r, rules, g))
			}
			r.Settle(w.now, rules)
		}
	})
	if w.lates > 0 && !op.renew {
		can("a withdrawal is late, and nobody waits for its answer", func(w *world) {
			w.lates--
			op := w.ops[i]
			op.executed = true
			for _, g := range op.batch.Grants {
				w.late1(g)
				op.errs = append(op.errs, driver.Uncertain(errStore))
			}
		})
	}
	if w.fails > 0 {
		can("a "+what+" fails", func(w *world) {
			w.fails--
			op := w.ops[i]
			op.executed = true
			for range op.batch.Grants {
				op.renewals = append(op.renewals, driver.Renewal{Err: errStore})
				op.errs = append(op.errs, errStore)
			}
		})
	}
}

// otherSteps are what an operator, a stranger, and the owner of the client can do.
func (w *world) otherSteps(can func(string, func(*world))) {
	if w.closes > 0 {
		can("the client is closed", func(w *world) {
			w.closes--
			w.closed = true
			w.step(engine.Event{Kind: engine.Closed})
			for _, p := range w.people {
				p.cancelled = true
			}
		})
	}
	if len(w.untold) > 0 {
		can("the store tells of a break", func(w *world) {
			w.told = append(w.told, w.untold[0])
			w.step(engine.Event{Kind: engine.LossesTold, Losses: map[string]error{w.untold[0]: driver.ErrBroken}})
			w.untold = w.untold[1:]
		})
	}
	for _, name := range []string{"a", "b"} {
		if r := w.names[name]; r != nil && w.breaks > 0 && len(r.Holds) > 0 && r.Holds[0].Owner != "stranger" && !r.Holds[0].Closed {
			can("an operator breaks "+name, func(w *world) {
				w.breaks--
				r, rules := w.settled(name)
				if len(r.Holds) > 0 {
					h, _ := r.Break(r.Holds[0].Token)
					w.broken, w.untold = append(w.broken, h.Owner), append(w.untold, h.Owner)
					r.Settle(w.now, rules)
				}
			})
		}
	}
	if w.copies > 0 {
		can("the replica catches up", func(w *world) {
			w.copies--
			w.replica = &replica{names: copyNames(w.names), memory: w.memory}
		})
	}
	if w.forgets > 0 {
		can("the replica takes over", func(w *world) {
			w.forgets--
			w.life++
			old := w.replica
			if old == nil {
				old = &replica{names: map[string]*record.Record{}}
				for name := range w.names {
					old.names[name] = &record.Record{}
				}
			}
			w.names, w.memory, w.replica = copyNames(old.names), old.memory, nil
		})
	}
	if !w.setup.stranger {
		return
	}
	name := w.people[0].name
	request := driver.Request{Name: name, Owner: "stranger", TTL: ttl}
	switch w.stranger {
	case out:
		can("a stranger queues", func(w *world) {
			r, rules := w.settled(name)
			w.stranger = sent
			if h, err := r.Ask(request, "", true, w.now, w.now, rules); err == nil {
				w.trusting = h.Since.Add(h.Valid)
			}
		})
	case sent:
		if w.names[name].Held("stranger") != nil {
			can("the stranger releases", func(w *world) {
				r, rules := w.settled(name)
				w.stranger, w.trusting = done, 0
				r.Release("stranger", 0, 0, w.now, rules)
				r.Settle(w.now, rules)
			})
		}
	}
}

// check returns what is wrong with a world.
func (w *world) check() error {
	if w.err != nil {
		return w.err
	}
	if err := w.e.Check(); err != nil {
		return err
	}
	trusted := map[string]*person{}
	for _, p := range w.people {
		if p.phase == asleep && !p.c.Asleep() && !p.woken {
			return fmt.Errorf("P7: caller %v sleeps, and nobody wakes it", p.c.Ref)
		}
		if !p.c.Held() {
			continue
		}
		if p.phase == failed {
			return fmt.Errorf("P6: caller %v has failed, and has the name", p.c.Ref)
		}
		if w.now >= p.c.Until() {
			if at, due := w.e.Next(); !due || at > w.now {
				return fmt.Errorf("P2: the lease of caller %v has ended, and it is not told", p.c.Ref)
			}
			continue
		}
		if most := p.begun.Add(p.maxHold + ttl); p.maxHold > 0 && p.phase == working && p.c.Until() > most {
			return fmt.Errorf("P2: caller %v trusts its lease for %v longer than its maximum hold allows",
				p.c.Ref, p.c.Until().Sub(most))
		}
		if at, due := w.e.Next(); !due || at > p.c.Until() {
			return fmt.Errorf("P2: when the lease of caller %v ends, nothing is due", p.c.Ref)
		}
		if w.life > 0 { // the store may have forgotten the hold, but then nobody else has one
			if w.now < w.trusting {
				return fmt.Errorf("P1: caller %v and the stranger both trust %s", p.c.Ref, p.name)
			}
		} else if err := w.trustworthy(p); err != nil {
			return err
		}
		if slices.Contains(w.broken, w.e.Grant(p.c).Owner) {
			continue // an operator's break is the one exception
		}
		if other := trusted[p.name]; other != nil && (p.mode == driver.Exclusive || other.mode == driver.Exclusive) {
			return fmt.Errorf("P1: callers %v and %v both trust %s", other.c.Ref, p.c.Ref, p.name)
		}
		trusted[p.name] = p
	}
	return nil
}

// trustworthy returns what is wrong with a caller's trust in its lease: the store must have its
// hold, unless an operator broke it.
func (w *world) trustworthy(p *person) error {
	owner := w.e.Grant(p.c).Owner
	if slices.Contains(w.broken, owner) {
		return nil
	}
	h := w.names[p.name].Held(owner)
	switch {
	case h == nil || w.now >= h.Expires:
		return fmt.Errorf("P1: caller %v trusts the hold of %s, and the store has none", p.c.Ref, owner)
	case p.minHold > 0 && h.Claim:
		return fmt.Errorf("P5: caller %v works under a claim, of whose minimum hold the store knows nothing", p.c.Ref)
	case p.c.Token() < h.Token || p.c.Token() > max(h.Last, h.Token):
		return fmt.Errorf("P3: caller %v has token %d, of %d to %d", p.c.Ref, p.c.Token(), h.Token, h.Last)
	}
	return nil
}

// end returns what is wrong with a world in which nothing can happen any more.
func (w *world) end() error {
	if w.times == 0 {
		return nil // something could, if time passed
	}
	for i, p := range w.people {
		if p.phase != done && p.phase != failed {
			return fmt.Errorf("P7: caller %d is %s for ever", i, phases[p.phase])
		}
		if p.released > 1 {
			return fmt.Errorf("P4: caller %d has released %d times", i, p.released)
		}
	}
	if !w.e.Idle() {
		return errors.New("P9: the engine has not forgotten everything")
	}
	if w.life > 0 {
		return nil // what the replica knew of holds and places that have ended since ends by itself
	}
	for name, r := range w.names {
		for _, h := range r.Holds {
			if h.Owner != "stranger" && w.now < h.Expires {
				return fmt.Errorf("P6: the store still has a hold of %s on %s", h.Owner, name)
			}
		}
		for _, p := range r.Queue {
			if p.Owner != "stranger" {
				return fmt.Errorf("P6: the store still has a place of %s on %s", p.Owner, name)
			}
		}
	}
	return nil
}
