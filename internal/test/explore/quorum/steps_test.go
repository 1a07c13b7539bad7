package quorum_test

import (
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/explore"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// next returns all steps out of a world.
func (w *world) next() []explore.Step[*world] {
	var steps []explore.Step[*world]
	can := func(name string, do func(*world)) {
		to := *w
		do(&to)
		to.tidy()
		steps = append(steps, explore.Step[*world]{Name: name, To: &to})
	}
	for c := range w.clients {
		w.clientSteps(c, can)
		for n := range nodes {
			w.requestSteps(c, n, can)
		}
	}
	for o := owner(1); o <= owners; o++ {
		w.lateSteps(o, can)
	}
	for n := range nodes {
		w.nodeSteps(n, can)
	}
	w.timeSteps(can)
	return steps
}

// clientSteps are what a client can begin and end.
func (w *world) clientSteps(c int, can func(string, func(*world))) {
	cl := &w.client[c]
	switch {
	case cl.phase == idle && cl.attempts > 0:
		can(fmt.Sprintf("client %d asks all nodes", c), func(w *world) { w.begin(c) })
	case cl.phase == trying && w.left.cancels > 0:
		can(fmt.Sprintf("client %d gives up", c), func(w *world) {
			w.left.cancels--
			w.do(c, w.client[c].attempt.GiveUp())
		})
	case cl.phase == holding:
		if w.release {
			can(fmt.Sprintf("client %d releases", c), func(w *world) { w.end(c) })
		}
		if w.believes(c) && cl.renewals > 0 && !(cl.renewing && cl.renewal.Phase == vote.Asking) {
			can(fmt.Sprintf("client %d asks all nodes to renew", c), func(w *world) { w.renew(c) })
		}
	}
}

// begin begins an attempt.
func (w *world) begin(c int) {
	cl := &w.client[c]
	cl.phase, cl.before = trying, w.granted
	cl.owner = owner(1 + c*attempts + int(w.attempts-cl.attempts))
	cl.attempts--
	cl.attempt = w.rules.Begin(ttl, w.at(c))
	for n := range nodes {
		cl.asked[n] = exchange{kind: ask}
	}
}

// renew begins a renewal. What is left of the one before goes on without its client.
func (w *world) renew(c int) {
	cl := &w.client[c]
	cl.renewals--
	w.forget(c)
	cl.renewing = true
	cl.renewal = w.rules.Renew(ttl, cl.until, w.at(c))
	for n := range nodes {
		cl.asked[n] = exchange{kind: renew}
	}
}

// forget leaves a client's requests to themselves. Those for votes can still arrive.
func (w *world) forget(c int) {
	cl := &w.client[c]
	for n := range nodes {
		if x := cl.asked[n]; !x.answered && (x.kind == ask || x.kind == restore) {
			w.stray[cl.owner] |= vote.Of(n)
		}
		cl.asked[n] = exchange{}
	}
}

// end ends an attempt or a hold. It is withdrawn at all nodes: see lateSteps.
func (w *world) end(c int) {
	cl := &w.client[c]
	if w.forget(c); !w.strays {
		w.stray[cl.owner] = 0
	}
	*cl = client{attempts: cl.attempts, renewals: cl.renewals, missed: cl.missed}
}

// do does what the vote says.
func (w *world) do(c int, step vote.Step) {
	cl := &w.client[c]
	more := restore
	if cl.phase == trying {
		more = write
	}
	for i := range nodes {
		if step.Nodes.Has(i) {
			cl.asked[i] = exchange{kind: more}
		}
	}
	switch {
	case step.Now == vote.Won && cl.phase == trying:
		cl.phase, cl.until, cl.token = holding, cl.attempt.Until(), cl.attempt.Token
		if w.rules.Tokens {
			w.grant(cl.token, cl.before)
		}
	case step.Now == vote.Won:
		if !w.believes(c) {
			w.err = errors.New("P2: a renewal revives a hold that was over")
		}
		cl.until = max(cl.until, cl.renewal.Until())
	case step.Now == vote.Over:
		w.end(c)
	}
}

// grant notes the token of a grant, and the highest that was granted before the attempt began. While the
// clocks are within the bound, tokens grow from grant to grant. If they are not, two attempts may overlap
// that both succeed, and the one with the lower token may end last: then a token is higher than all that
// were granted before its attempt began, and no two are the same.
func (w *world) grant(token, before driver.Token) {
	if w.wild {
		if token <= before || !w.clocks && w.all&(1<<token) != 0 {
			w.err = errors.New("P3: a grant has no higher token than one before it, or the same as another")
		}
		w.all |= 1 << token
	} else if token <= w.granted {
		w.err = errors.New("P3: a grant has no higher token than one before it")
	}
	w.granted = max(w.granted, token)
}

// requestSteps are what can become of a client's request to a node.
func (w *world) requestSteps(c, n int, can func(string, func(*world))) {
	x := w.client[c].asked[n]
	if x.kind == nothing {
		return
	}
	what := fmt.Sprintf("%s of client %d", kinds[x.kind], c)
	if x.answered {
		can(fmt.Sprintf("the answer of node %d to the %s arrives", n, what), func(w *world) { w.deliver(c, n, w.client[c].asked[n].reply) })
		return
	}
	can(fmt.Sprintf("node %d executes the %s, and answers", n, what), func(w *world) { w.deliver(c, n, w.execute(c, n, x.kind)) })
	if w.left.late > 0 {
		can(fmt.Sprintf("node %d executes the %s, and its answer is late", n, what), func(w *world) {
			w.left.late--
			y := &w.client[c].asked[n]
			y.reply, y.answered = w.execute(c, n, x.kind), true
		})
	}
	if w.left.losses > 0 {
		can(fmt.Sprintf("node %d executes the %s, and its answer is lost", n, what), func(w *world) {
			w.left.losses--
			w.execute(c, n, x.kind)
			w.silence(c, n)
		})
		can(fmt.Sprintf("the %s to node %d is lost", what, n), func(w *world) {
			w.left.losses--
			w.silence(c, n)
		})
	}
}

// deliver tells a client a node's answer.
func (w *world) deliver(c, n int, r reply) {
	cl := &w.client[c]
	kind := cl.asked[n].kind
	cl.asked[n] = exchange{}
	w.told(c, n, kind, &r)
}

// silence tells a client that there will be no answer.
func (w *world) silence(c, n int) {
	kind := w.client[c].asked[n].kind
	w.client[c].asked[n] = exchange{}
	w.told(c, n, kind, nil)
}

// told is the client's step after an answer, or without one.
func (w *world) told(c, n int, kind kind, r *reply) {
	cl, now := &w.client[c], w.at(c)
	reply := vote.Reply{Answer: vote.Lost}
	if r != nil {
		if reply.Answer, reply.Token = vote.Refused, r.token; r.yes {
			reply.Answer = vote.Given
		}
	}
	switch kind {
	case ask:
		cl.high[n] = reply.Token
		w.do(c, cl.attempt.Answer(n, reply, now))
	case write:
		w.do(c, cl.attempt.Wrote(n, reply.Answer == vote.Given, now))
	case renew:
		w.do(c, cl.renewal.Answer(n, reply, now))
	}
}

// execute is what a node does.
func (w *world) execute(c, n int, kind kind) reply {
	cl, no := &w.client[c], &w.nodes[n]
	yes := no.holder == cl.owner
	switch kind {
	case ask, restore:
		yes = w.give(n, cl.owner)
	case renew:
		if yes {
			no.expires = w.clock(n) + int(ttl/tick)
			no.last = max(no.last, cl.token)
		}
	case write:
		if yes {
			no.last = max(no.last, cl.attempt.Token)
		}
	}
	r := reply{yes: yes}
	if yes && kind == ask {
		r.token = no.token
	}
	return r
}

// give gives a node's vote to an owner, if it can.
func (w *world) give(n int, o owner) bool {
	no := &w.nodes[n]
	if no.holder != 0 && no.holder != o || no.holder == 0 && !w.opens(n) {
		return false
	}
	if no.holder == 0 && w.rules.Tokens {
		no.last++
		if w.clocks {
			no.last = max(no.last, driver.Token(w.clock(n)*rate))
		}
		no.token = no.last
	}
	no.holder, no.expires = o, w.clock(n)+int(ttl/tick)
	return true
}

// lateSteps are what can become of requests that a client has forgotten, and of votes for what is over: each is
// withdrawn at some time. World withdrawals shows that none is left.
func (w *world) lateSteps(o owner, can func(string, func(*world))) {
	for n := range nodes {
		if w.stray[o].Has(n) {
			can(fmt.Sprintf("the late request of owner %d comes to node %d", int(o), n), func(w *world) {
				w.stray[o] &^= vote.Of(n)
				w.give(n, o)
			})
		}
		if w.nodes[n].holder == o && w.over(o) {
			can(fmt.Sprintf("the withdrawal of owner %d comes to node %d", int(o), n), func(w *world) {
				w.stray[o] &^= vote.Of(n) // a tombstone refuses it
				w.nodes[n].holder = 0
			})
		}
	}
}

// nodeSteps are what can become of a node.
func (w *world) nodeSteps(n int, can func(string, func(*world))) {
	if w.left.restarts > 0 {
		can(fmt.Sprintf("node %d restarts without its memory", n), func(w *world) {
			w.left.restarts-- // a request that waits for a connection comes to the new life
			w.nodes[n] = node{ahead: w.nodes[n].ahead}
			w.begins(n, w.nodeAt(n))
		})
	}
	if no := &w.nodes[n]; w.idle > 0 && no.holder == 0 && no.last > 0 && w.clock(n)*rate >= int(no.last)+w.idle*rate {
		can(fmt.Sprintf("node %d forgets the name, which is idle", n), func(w *world) { w.nodes[n].last = 0 })
	}
	if w.left.gains > 0 && (w.jumps || w.wild || w.nodes[n].ahead == w.skew[n]) {
		can(fmt.Sprintf("the clock of node %d gains a tick", n), func(w *world) {
			w.left.gains--
			w.nodes[n].ahead++
		})
	}
	if w.left.backs > 0 && (w.jumps || w.wild || w.nodes[n].ahead > w.skew[n]) {
		can(fmt.Sprintf("the clock of node %d is set back by a tick", n), func(w *world) {
			w.left.backs--
			w.nodes[n].ahead--
		})
	}
}

// timeSteps let time pass.
func (w *world) timeSteps(can func(string, func(*world))) {
	if w.ticks > 0 && w.now >= past+w.ticks {
		return
	}
	can("a tick passes", func(w *world) { w.now++ })
	for c := range w.clients {
		if w.left.misses > 0 && (w.jumps || w.wild || w.client[c].missed == 0) {
			can(fmt.Sprintf("a tick passes, but not by the clock of client %d", c), func(w *world) {
				w.left.misses--
				w.client[c].missed++
				w.now++
			})
		}
	}
}

// tidy ends the votes that nobody renewed, and what clients give up. What is so long ago that it makes
// no difference how long becomes only just so old, and what has no effect any more is dropped, so that the
// world comes to an end.
func (w *world) tidy() {
	for i := range w.nodes {
		if n := &w.nodes[i]; n.holder != 0 && w.clock(i) >= n.expires {
			n.holder = 0
		}
		if n := &w.nodes[i]; n.holder == 0 {
			n.expires, n.token = 0, 0
		}
	}
	for c := range w.clients {
		cl, now := &w.client[c], w.at(c)
		ago := func(ticks int) driver.Instant { return now - driver.Instant(ticks)*driver.Instant(tick) }
		if cl.phase == trying && cl.attempt.Sent <= ago(old) {
			w.do(c, cl.attempt.GiveUp())
		}
		if cl.renewing && cl.renewal.Sent <= ago(old) {
			w.forget(c)
			cl.renewing, cl.renewal = false, vote.Renewal{}
		}
		if cl.phase == holding && cl.until < now && !(cl.renewing && cl.renewal.Phase == vote.Asking) {
			w.end(c)
		}
	}
}
