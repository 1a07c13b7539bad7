package zksession_test

import (
	"time"

	"github.com/holdfastlock/holdfast/internal/test/explore"
	"github.com/holdfastlock/holdfast/internal/zksession"
)

type can func(name string, do func(*world))

// next returns all steps out of a world.
func (w *world) next() []explore.Step[*world] {
	var steps []explore.Step[*world]
	can := func(name string, do func(*world)) {
		to := *w
		do(&to)
		to.tidy()
		if to.state != w.state {
			steps = append(steps, explore.Step[*world]{Name: name, To: &to})
		}
	}
	for x := range int8(servers) {
		w.serverSteps(x, can)
	}
	w.connectionSteps("", &w.a.conn, func(w *world) *connection { return &w.a.conn }, can)
	w.connectionSteps("old ", &w.a.old, func(w *world) *connection { return &w.a.old }, can)
	w.clientSteps(can)
	w.otherSteps(can)
	can("a tick passes", (*world).pass)
	return steps
}

// pass lets a tick pass.
func (w *world) pass() {
	for i := range w.servers {
		for j := range w.servers[i].track {
			if t := &w.servers[i].track[j]; t.left > 0 {
				t.left--
			}
		}
	}
	for _, c := range []*connection{&w.a.conn, &w.a.old} {
		for i := range c.requests {
			c.in[i].older()
		}
		for i := range c.replies {
			c.out[i].older()
		}
	}
	for i := range w.a.sessions {
		if s := &w.a.sessions[i]; s.Since != 0 {
			s.Since = max(s.Since.Add(-tick), now.Add(-timeout*tick))
		}
	}
	if w.a.claim > 0 {
		w.a.claim--
	}
}

func (r *request) older() { r.age = min(r.age+1, timeout) }

// tidy forgets what makes no difference any more.
func (w *world) tidy() {
	if w.others == 0 { // nobody looks at followers
		for i := range w.servers {
			if leader, connected := w.leaderOf(int8(i)); connected {
				s := &w.servers[i]
				s.applied = max(s.applied, min(s.n, w.servers[leader].applied))
			}
		}
	}
	all := w.servers[0].applied
	for i := range w.servers {
		all = min(all, w.servers[i].applied)
	}
	for _, e := range w.servers[0].log[:all] {
		w.base.apply(e)
	}
	for i := range w.servers {
		s := &w.servers[i]
		if all > 0 {
			var log [maxLog]entry
			copy(log[:], s.log[all:s.n])
			s.log, s.n, s.applied = log, s.n-all, s.applied-all
		}
		if !s.leads {
			s.track = [3]track{}
		}
	}
	for _, c := range []*connection{&w.a.conn, &w.a.old} {
		if c.stage == proposed {
			c.at -= min(c.at, all)
		}
		if c.there && !c.open {
			c.in, c.requests, c.stage, c.at = [3]request{}, 0, unread, 0
		}
	}
	if o := &w.a.old; !o.open || o.requests == 0 {
		*o = connection{}
	}
	if a := &w.a; a.sessions[a.session].Over {
		a.sessions[a.session].Since = 0
	}
}

// propose appends to a leader's log.
func (s *server) propose(e entry) uint8 {
	s.log[s.n] = e
	s.n++
	return s.n
}

// serverSteps are what a server does by itself, and with others.
func (w *world) serverSteps(x int8, can can) {
	s := &w.servers[x]
	if s.leads {
		for n := range s.track {
			if t := s.track[n]; t.known && !t.closing && t.left == 0 {
				can(named("server %d lets session %d expire", x, n), func(w *world) {
					s := &w.servers[x]
					s.track[n] = track{known: true, closing: true}
					s.propose(entry{finish, uint8(n), 0})
				})
			}
		}
	}
	if leader, connected := w.leaderOf(x); connected && leader != x {
		w.followerSteps(x, leader, can)
	}
	for f := range int8(servers) {
		o := &w.servers[f]
		if f != x && w.left.elections > 0 && (s.epoch > o.epoch || s.epoch == o.epoch && s.n >= o.n) {
			can(named("server %d is elected with server %d", x, f), func(w *world) { w.elect(x, f) })
		}
	}
	if newest := w.newest(); w.servers[newest].epoch > s.epoch {
		can(named("server %d joins server %d", x, newest), func(w *world) {
			w.follow(x, newest, w.servers[newest].applied)
		})
	}
}

// followerSteps are what a follower and its leader do together.
func (w *world) followerSteps(f, leader int8, can can) {
	s, l := &w.servers[f], &w.servers[leader]
	if s.n < l.n {
		can(named("server %d logs what server %d proposes", f, leader), func(w *world) {
			s, l := &w.servers[f], &w.servers[leader]
			s.log, s.n = l.log, l.n
		})
	}
	if s.n > l.applied {
		can(named("server %[2]d hears what server %[1]d has logged", f, leader), func(w *world) { w.servers[leader].applied = w.servers[f].n })
	}
	if s.applied < l.applied && s.applied < s.n {
		can(named("server %d applies what server %d has committed", f, leader), func(w *world) {
			w.servers[f].applied = min(w.servers[leader].applied, w.servers[f].n)
		})
	}
}

// touch counts a session's timeout anew, and reports whether the leader knows it.
func (s *server) touch(session uint8) bool {
	t := &s.track[session]
	if !t.known || t.closing {
		return false
	}
	t.left = timeout
	return true
}

// elect makes a server the leader, with another. What it has logged is committed.
func (w *world) elect(x, f int8) {
	w.left.elections--
	epoch := w.servers[w.newest()].epoch + 1
	s := &w.servers[x]
	s.leads, s.leader, s.epoch, s.applied = true, 0, epoch, s.n
	s.track = [3]track{}
	for n, lives := range w.tree(x).lives {
		if lives {
			s.track[n] = track{known: true, left: timeout}
		}
	}
	w.closeConnections(x)
	w.follow(f, x, s.applied)
}

// follow makes a server a follower.
func (w *world) follow(x, leader int8, applied uint8) {
	l := &w.servers[leader]
	w.servers[x] = server{leader: leader, epoch: l.epoch, log: l.log, n: l.n, applied: applied}
	w.closeConnections(x)
}

func (w *world) closeConnections(x int8) {
	for _, c := range []*connection{&w.a.conn, &w.a.old} {
		if c.there && c.server == x {
			c.open = false
		}
	}
}

// answer ends the first request of a connection.
func (c *connection) answer(r reply) {
	copy(c.in[:], c.in[1:c.requests])
	c.requests--
	c.in[c.requests] = request{}
	c.stage, c.at = unread, 0
	c.out[c.replies] = r
	c.replies++
}

// connectionSteps are what a server does with the first request of a connection.
func (w *world) connectionSteps(which string, c *connection, of func(*world) *connection, can can) {
	if !c.there || !c.open || c.requests == 0 {
		return
	}
	x, r := c.server, c.in[0]
	s := &w.servers[x]
	on := func(what string, do func(*world, *server, *connection)) {
		can(named("server %d "+what+", on A's "+which+"connection", x, ops[r.op]), func(w *world) { do(w, &w.servers[x], of(w)) })
	}
	switch {
	case c.stage == proposed:
		if s.applied >= c.at {
			on("answers a %s", func(_ *world, _ *server, c *connection) { c.answer(reply{request: r}) })
		}
	case r.op.writes():
		on("takes a %s", func(_ *world, s *server, c *connection) {
			if r.op == open {
				s.track[c.session] = track{known: true, left: timeout}
			}
			if !s.touch(c.session) {
				c.answer(reply{request: r, code: expired})
				return
			}
			c.stage, c.at = proposed, s.propose(entry{r.op, c.session, r.node})
		})
	case s.waits(c.session):
	default:
		on("answers a %s", func(w *world, s *server, c *connection) {
			a := reply{request: r}
			if !s.touch(c.session) {
				a.code = expired
			}
			t := w.tree(x)
			switch r.op {
			case read:
				a.there, a.first = t.has(w.a.node), t.first() == w.a.node
			case look:
				a.there = t.lives[1]
			}
			c.answer(a)
		})
	}
}

// waits reports whether a request of a session is proposed and not applied: the leader lets the session's
// reads wait for it.
func (s *server) waits(session uint8) bool {
	for _, e := range s.log[s.applied:s.n] {
		if e.session == session && e.op != finish {
			return true
		}
	}
	return false
}

// otherSteps are what B does. Its session never ends, and it looks at any server.
func (w *world) otherSteps(can can) {
	b, x := &w.b, w.newest()
	logged := w.logged(x)
	switch {
	case b.holds:
		can("B releases", func(w *world) {
			w.servers[x].propose(entry{remove, 0, w.b.node})
			w.b.holds = false
		})
	case w.left.others > 0 && !logged.has(b.node):
		can("B asks for the name", func(w *world) {
			w.left.others--
			w.b.node = max(w.b.node+1, firstOfB)
			w.servers[x].propose(entry{create, 0, w.b.node})
		})
	}
	for y := range int8(servers) {
		if t := w.tree(y); !b.holds && t.first() == b.node && logged.has(b.node) {
			can("B sees that it is the first", func(w *world) { w.b.holds = true })
			return
		}
	}
}

// send sends requests.
func (c *connection) send(rs ...request) {
	for _, r := range rs {
		c.in[c.requests] = r
		c.requests++
	}
}

// clientSteps are what A does.
func (w *world) clientSteps(can can) {
	a := &w.a
	s := &a.sessions[a.session]
	if !a.conn.there {
		if w.left.connects > 0 {
			for x := range int8(servers) {
				w.connectSteps(x, can)
			}
		}
		if a.phase == withdrawing && a.part <= deleting && s.Over {
			can("A is told of the end of its session", func(w *world) { w.judge(zksession.Asked{Expired: true}) })
		}
		return
	}
	c := &a.conn
	if c.replies > 0 {
		can(named("A gets the answer to its %s", ops[c.out[0].op]), (*world).receive)
	} else if !c.open {
		can("A notices that its connection is closed", (*world).disconnect)
	}
	if w.left.drops > 0 {
		can("A gives up its connection", func(w *world) { w.left.drops--; w.disconnect() })
	}
	quiet := c.requests == 0 && c.replies == 0
	if !c.open || s.Over {
		return
	}
	sends := func(name string, left func(*budget) *int8, rs ...request) {
		if left != nil && *left(&w.left) == 0 {
			return
		}
		can(name, func(w *world) {
			if left != nil {
				*left(&w.left)--
			}
			switch {
			case rs[0].op == create:
				w.a.phase, w.a.node = asking, rs[0].node
			case w.a.phase == holding && rs[0].op == remove:
				w.a.phase = releasing
			case w.a.phase == withdrawing:
				w.a.part++
				w.a.answers = zksession.Asked{}
			}
			w.a.conn.send(rs...)
		})
	}
	if quiet && (a.phase == holding || a.phase == queued) {
		sends("A renews its session", func(b *budget) *int8 { return &b.renewals }, request{op: write})
		sends("A pings", func(b *budget) *int8 { return &b.pings }, request{op: ping})
	}
	switch {
	case a.phase == idle && w.left.attempts > 0 && quiet:
		next := firstOfA
		if a.node != 0 {
			next = a.node + 1
		}
		sends("A asks for the name", func(b *budget) *int8 { return &b.attempts }, request{op: create, node: next}, request{op: read})
	case a.phase == queued && quiet:
		sends("A looks at the queue", func(b *budget) *int8 { return &b.polls }, request{op: read})
	case a.phase == holding && quiet:
		sends("A looks at its hold", func(b *budget) *int8 { return &b.reads }, request{op: read})
		sends("A releases", nil, request{op: remove, node: a.node})
	case a.phase == withdrawing && quiet && a.part == toAsk:
		rs := []request{{op: write}, {op: read}}
		if w.hasty {
			rs = rs[1:]
		}
		sends("A asks what became of its attempt", func(b *budget) *int8 { return &b.withdraws }, rs...)
	case a.phase == withdrawing && quiet && a.part == toOpen && a.session == 2:
		sends("A opens another session", nil, request{op: open})
	case a.phase == withdrawing && quiet && a.part == elsewhere:
		sends("A asks in another session", func(b *budget) *int8 { return &b.withdraws }, request{op: write}, request{op: look})
	}
	if (a.phase == asking || a.phase == queued) && w.left.cancels > 0 {
		can("A gives up", func(w *world) { w.left.cancels--; w.takeBack() })
	}
}

// takeBack begins a withdrawal.
func (w *world) takeBack() { w.a.phase, w.a.part, w.a.claim = withdrawing, toAsk, 0 }

// disconnect gives a connection up. Its server may still take what was sent.
func (w *world) disconnect() {
	a := &w.a
	a.old, a.conn = a.conn, connection{}
	a.old.out, a.old.replies = [3]reply{}, 0
	switch {
	case a.phase == asking || a.phase == releasing:
		w.takeBack()
	case a.phase != withdrawing:
	case a.part == asked, a.part == deleting:
		a.part = toAsk
	case a.part == opening:
		a.part = toOpen
	case a.part == askedElsewhere:
		a.part = elsewhere
	}
}

// connectSteps are A's ways to a server that leads, or did. A server that is asked for a session closes its older
// connection to it.
func (w *world) connectSteps(x int8, can can) {
	a := &w.a
	session := a.session
	if a.phase == withdrawing && a.part == toOpen {
		session = 2
	}
	if !w.servers[x].leads || a.sessions[session].Over {
		return
	}
	can(named("A connects to server %d", x), func(w *world) {
		a := &w.a
		w.left.connects--
		a.conn = connection{there: true, open: true, server: x, session: session}
		if a.session = session; a.phase == withdrawing && a.part == toOpen {
			return
		}
		if !w.servers[x].touch(session) {
			w.ended()
		} else if a.old.server == x {
			a.old = connection{}
		}
	})
}

// ended takes in that a server says that the session is over.
func (w *world) ended() {
	a := &w.a
	a.sessions[a.session].End()
	a.old, a.conn = a.conn, connection{}
	a.old.out, a.old.replies = [3]reply{}, 0
	switch {
	case a.phase == idle:
	case a.phase == withdrawing && a.part >= toOpen: // the other session too
		a.part = askedElsewhere
	default:
		w.takeBack()
	}
}

// receive takes in an answer.
func (w *world) receive() {
	a := &w.a
	c := &a.conn
	r := c.out[0]
	copy(c.out[:], c.out[1:c.replies])
	c.replies--
	c.out[c.replies] = reply{}
	if r.code == expired {
		w.ended()
		return
	}
	sent := now.Add(-time.Duration(r.age) * tick)
	if w.arrival {
		sent = now
	}
	a.sessions[a.session].Answered(r.op.writes(), sent)
	switch a.phase {
	case asking, queued:
		switch {
		case r.op != read:
		case r.first:
			if a.phase = holding; w.claims {
				a.claim = timeout
			}
		case r.there:
			a.phase = queued
		default:
			w.takeBack()
		}
	case holding:
		if r.op == read && !r.there {
			w.takeBack()
		}
	case releasing:
		if r.op == remove {
			w.done()
		}
	case withdrawing:
		w.withdrawalAnswered(r)
	}
}

// withdrawalAnswered takes in an answer to what A asks for a withdrawal.
func (w *world) withdrawalAnswered(r reply) {
	a := &w.a
	switch a.part {
	case asked, askedElsewhere:
		switch r.op {
		case write:
			a.answers.Written = true
		case read, look:
			a.answers.Read, a.answers.There = true, r.there
			w.judge(a.answers)
		}
	case deleting:
		if r.op == remove {
			w.done()
		}
	case opening:
		a.part = elsewhere
	}
}

// judge does what the answers to a withdrawal mean.
func (w *world) judge(answers zksession.Asked) {
	a := &w.a
	a.answers = zksession.Asked{}
	if a.part == askedElsewhere {
		if a.part = elsewhere; zksession.Ended(answers) == zksession.Done {
			w.done()
		}
		return
	}
	switch a.part = toAsk; zksession.Withdrawn(answers) {
	case zksession.Done:
		w.done()
	case zksession.Delete:
		a.part = deleting
		a.conn.send(request{op: remove, node: a.node})
	case zksession.Elsewhere:
		a.part = toOpen
	}
}

// done is the certain end of an attempt.
func (w *world) done() {
	w.a.withdrawn[w.a.node] = true
	w.a.phase, w.a.part = idle, toAsk
}
