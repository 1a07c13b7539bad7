// Package zksession explores internal/zksession, the decision code of ZooKeeper's sessions, as it ships: a
// client A wants a name at an ensemble of three servers, beside another client B, whose session never
// ends.
//
// The ensemble is Zab, as far as sessions see it. The leader appends to its log, followers log and
// acknowledge that, what a majority has is committed, and each server applies what is committed later. Any
// server that has as much as another can be elected with it, and commits all that it has logged. A deposed
// leader goes on as one until it notices. A server or a client that stands still, and messages that are
// delayed or lost, need nothing of their own: they are steps that come late, or never.
//
// The leader ends sessions by its clock: a timeout after it took in a request of one of its own clients, after it
// was asked for a session that a client resumes, or after it was elected. A is at servers that lead, or did: they
// answer reads, pings and clients that come back by themselves. Clocks run at the same rate.
package zksession_test

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/explore"
	"github.com/holdfastlock/holdfast/internal/zksession"
)

const (
	servers = 3
	tick    = time.Second
	timeout = 2                           // ticks
	now     = driver.Instant(1000 * tick) // always: instants move back instead
)

// setup is what is explored.
type setup struct {
	behind bool // B has the name at the start
	prefix []string

	// Mistakes of a driver.
	arrival bool // trust counts from when an answer arrives
	claims  bool // a hold that A is told of counts from then
	hasty   bool // A withdraws by a read alone

	budget
}

// budget is how often things happen.
type budget struct {
	attempts  int8 // of A
	renewals  int8 // writes
	pings     int8
	reads     int8 // beyond what A needs
	polls     int8 // of A in the queue
	cancels   int8 // attempts that A gives up
	drops     int8 // connections that A gives up
	connects  int8
	withdraws int8 // times that A asks what has become of an attempt
	elections int8
	others    int8 // attempts of B
}

// node is a place in the name's queue. 0: none.
type node uint8

// The nodes: A's of its attempts, and B's.
const (
	firstOfA node = 1
	firstOfB node = 3
	allNodes node = 4
)

// op is what A asks of a server.
type op uint8

const (
	ping   op = iota
	read      // the queue
	look      // for the node of A's first session
	write     // the session's own node
	create    // a node in the queue
	remove    // one
	open      // a session
	finish    // of a session, by the leader; never asked
)

var ops = [...]string{"ping", "read", "look", "write", "creation", "removal", "opening", "end"}

func (o op) writes() bool { return o >= write }

// entry is a transaction.
type entry struct {
	op      op
	session uint8
	node    node
}

// tree is what a server has applied.
type tree struct {
	queue   [allNodes]node
	n       uint8
	session [allNodes + 1]uint8 // of each node; 0: B's
	lives   [3]bool             // sessions
}

func (t *tree) has(n node) bool {
	for _, m := range t.queue[:t.n] {
		if m == n {
			return true
		}
	}
	return false
}

func (t *tree) first() node { return t.queue[0] }

func (t *tree) remove(gone func(node) bool) {
	kept := tree{session: t.session, lives: t.lives}
	for _, m := range t.queue[:t.n] {
		if gone(m) {
			kept.session[m] = 0
			continue
		}
		kept.queue[kept.n] = m
		kept.n++
	}
	*t = kept
}

func (t *tree) apply(e entry) {
	switch e.op {
	case create:
		if !t.has(e.node) {
			t.queue[t.n], t.session[e.node] = e.node, e.session
			t.n++
		}
	case remove:
		t.remove(func(n node) bool { return n == e.node })
	case open:
		t.lives[e.session] = true
	case finish:
		t.lives[e.session] = false
		t.remove(func(n node) bool { return t.session[n] == e.session })
	}
}

// track is what a leader knows of a session.
type track struct {
	known, closing bool
	left           uint8 // ticks until it may end
}

const maxLog = 12

// server is one of the ensemble.
type server struct {
	leads      bool
	leader     int8 // whom it follows
	epoch      uint8
	log        [maxLog]entry
	n, applied uint8
	track      [3]track // of the leader
}

// request is one of A's.
type request struct {
	op   op
	node node
	age  uint8 // ticks since its sending
}

// code is how a request ended.
type code uint8

const (
	ok code = iota
	expired
)

type reply struct {
	request
	code  code
	there bool // a read: A's node; a look: the session's node
	first bool // a read: A's node is the first
}

// stage is how far the first request of a connection has come at its server.
type stage uint8

const (
	unread stage = iota
	proposed
)

// connection is one of A's.
type connection struct {
	there    bool // there is one
	open     bool // at the server's side
	server   int8
	session  uint8
	in       [3]request
	requests uint8
	stage    stage
	at       uint8 // proposed: as which entry
	out      [3]reply
	replies  uint8
}

// phase is what A does.
type phase uint8

const (
	idle phase = iota
	asking
	queued
	holding
	releasing
	withdrawing
)

// part is how far a withdrawal has come.
type part uint8

const (
	toAsk     part = iota // in the session of the attempt
	asked                 // and not answered
	deleting              // the node
	toOpen                // another session
	opening               // it
	elsewhere             // to ask in the other session
	askedElsewhere
)

// client is A.
type client struct {
	sessions  [3]zksession.Trust
	session   uint8 // in use
	conn, old connection
	phase     phase
	node      node // of the attempt
	part      part
	answers   zksession.Asked
	withdrawn [firstOfB]bool // attempts that certainly have no effect
	claim     uint8          // ticks for which a mistaken claim lasts
}

// other is B.
type other struct {
	node  node
	holds bool
}

// state is a state. Its logs begin behind what every server has applied.
type state struct {
	left    budget
	base    tree
	servers [servers]server
	a       client
	b       other
}

type world struct {
	*setup
	state
}

func (s *setup) model() explore.Model[*world, [2]uint64] {
	w := &world{setup: s}
	w.left = s.budget
	w.base.lives[1] = true
	for i := range w.servers {
		w.servers[i].epoch = 1
	}
	l := &w.servers[0]
	l.leads = true
	l.track[1] = track{known: true, left: timeout}
	w.a.sessions[1].Since = now
	w.a.session = 1
	w.a.conn = connection{there: true, open: true, session: 1}
	if s.behind {
		w.base.apply(entry{create, 0, firstOfB})
		w.b = other{firstOfB, true}
	}
	w = w.play(s.prefix...)
	return explore.Model[*world, [2]uint64]{
		Start: w,
		Key: func(w *world) [2]uint64 {
			s := w.sorted()
			return [2]uint64{maphash.Comparable(seeds[0], s), maphash.Comparable(seeds[1], s)}
		},
		Next:  (*world).next,
		Check: (*world).check,
	}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// sorted returns the same state, or one in which servers have changed places, which makes no difference.
func (w *world) sorted() state {
	var alone [servers]uint64
	order := [servers]int8{0, 1, 2}
	for i := range w.servers {
		s := w.servers[i]
		s.leader = 0
		h := maphash.Comparable(seeds[0], s)
		if w.a.conn.there && int(w.a.conn.server) == i {
			h++
		}
		if w.a.old.there && int(w.a.old.server) == i {
			h += 2
		}
		alone[i] = h
	}
	slices.SortFunc(order[:], func(i, j int8) int { return cmp.Compare(alone[i], alone[j]) })
	var is [servers]int8
	for i, j := range order {
		is[j] = int8(i)
	}
	to := w.state
	for i := range w.servers {
		s := w.servers[i]
		s.leader = is[s.leader]
		to.servers[is[i]] = s
	}
	to.a.conn.server = is[to.a.conn.server]
	to.a.old.server = is[to.a.old.server]
	return to
}

// play takes the steps with these names.
func (w *world) play(names ...string) *world {
	for _, name := range names {
		var to *world
		for _, s := range w.next() {
			if s.Name == name {
				to = s.To
			}
		}
		if to == nil {
			panic(fmt.Sprintf("no such step: %s", name))
		}
		w = to
	}
	return w
}

// tree returns what a server has applied.
func (w *world) tree(x int8) tree {
	s := &w.servers[x]
	t := w.base
	for _, e := range s.log[:s.applied] {
		t.apply(e)
	}
	return t
}

// logged returns what a server will have applied if all that it has logged is committed.
func (w *world) logged(x int8) tree {
	s := &w.servers[x]
	t := w.base
	for _, e := range s.log[:s.n] {
		t.apply(e)
	}
	return t
}

// newest returns the leader that was elected last.
func (w *world) newest() (leader int8) {
	for i := range w.servers {
		if s := &w.servers[i]; s.leads && s.epoch >= w.servers[leader].epoch {
			leader = int8(i)
		}
	}
	return leader
}

// leaderOf returns the leader that a server is connected to, or is itself.
func (w *world) leaderOf(x int8) (leader int8, ok bool) {
	s := &w.servers[x]
	if s.leads {
		return x, true
	}
	l := &w.servers[s.leader]
	return s.leader, l.leads && l.epoch == s.epoch
}

// trusts reports whether A believes that it holds the name.
func (w *world) trusts() bool {
	a := &w.a
	s := &a.sessions[a.session]
	return a.phase == holding && !s.Over && (s.Since != 0 && now < s.Since.Add(timeout*tick) || a.claim > 0)
}

var (
	errTwo   = errors.New("P1: A and B both trust the name")
	errEnded = errors.New("P1: A trusts a hold that the ensemble has ended")
	errLate  = errors.New("P6: an attempt that was certainly withdrawn has a node")
)

// check returns what is wrong with a world.
func (w *world) check() error {
	t := w.tree(w.newest())
	for n := firstOfA; n < firstOfB; n++ {
		if w.a.withdrawn[n] && t.has(n) {
			return errLate
		}
	}
	switch {
	case !w.trusts():
	case w.b.holds:
		return errTwo
	case !t.has(w.a.node) && w.others == 0:
		return errEnded
	}
	return nil
}

var names sync.Map // of steps, by what they are made of

func named(format string, args ...any) string {
	type key struct {
		format string
		args   [3]any
	}
	k := key{format: format}
	copy(k.args[:], args)
	if s, ok := names.Load(k); ok {
		return s.(string)
	}
	s := fmt.Sprintf(format, args...)
	names.Store(k, s)
	return s
}
