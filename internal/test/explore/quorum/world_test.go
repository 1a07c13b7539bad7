// Package quorum explores internal/vote, the decision code of a quorum of nodes, as it ships: a few
// clients want one name at three nodes. Every request is in flight until its node executes it, in any
// order, at any time or never, and so is every withdrawal. Clients give up answers, nodes restart with
// and without their memory, and clocks err, within the bound that life.Drift allows and beyond it.
//
// Time goes by in ticks, for as long as it makes a difference. A TTL is three ticks, the drift that is
// allowed is a little more than one, so a hold is valid for two, and a node without memory grants nothing
// for five.
package quorum_test

import (
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/internal/test/explore"
	"github.com/holdfastlock/holdfast/internal/vote"
)

const (
	nodes    = 3
	most     = 3 // clients
	attempts = 2 // of each client, at most
	owners   = most * attempts

	tick = 2 * time.Millisecond
	ttl  = 3 * tick
	old  = 3 // ticks after which clients give up; a tick before that it is too late to succeed
	past = 8 // ticks since the nodes were started
	rate = 4 // tokens that a node's clock counts in a tick
)

// setup is what is explored.
type setup struct {
	clients int
	rules   vote.Rules
	forgets bool                // the nodes may forget, and keep the rule of package life
	start   [nodes]driver.Token // the last token that each node knows of
	skew    [nodes]int8         // ticks by which the clocks of nodes are ahead at the start
	clocks  bool                // nodes' tokens are no lower than their clocks
	idle    int                 // ticks after which a node may forget a token, counted from when its clock has passed it; 0: never
	jumps   bool                // clocks may err by more than a tick
	wild    bool                // the same, and P1 is not checked
	strays  bool                // requests of attempts that have failed still arrive
	release bool                // holders may release
	ticks   int                 // how long the world lasts; 0: until nothing changes any more
	prefix  []string            // the steps before the exploration begins
	budget
}

// budget is how often things happen.
type budget struct {
	attempts int8 // of each client
	renewals int8 // of each client
	cancels  int8 // attempts that are given up before they are decided
	losses   int8 // requests and answers that never come
	late     int8 // answers that are on their way for a while
	restarts int8 // nodes that restart without their memory
	gains    int8 // ticks that a node's clock gains; each node's gains one at most, unless they jump
	backs    int8 // times that a node's clock is set back by a tick
	misses   int8 // ticks that a client's clock misses; each client's misses one at most, unless they jump
}

// owner names an attempt, and the hold that came of it. 0: none.
type owner int8

// node is a store.
type node struct {
	holder  owner // who has its vote
	expires int   // when the vote ends, by the node's clock
	token   driver.Token
	last    driver.Token
	ahead   int8 // ticks that its clock is ahead of the time
	memory  life.Memory
}

// kind is what a client asks of a node.
type kind uint8

const (
	nothing kind = iota
	ask          // for its vote, in an attempt
	write        // the token
	renew
	restore // its vote, in a renewal
)

var kinds = [...]string{"", "request", "token", "renewal", "request to restore"}

// exchange is a request to one node.
type exchange struct {
	kind     kind
	answered bool // the answer is on its way
	reply    reply
}

// reply is what a node answers.
type reply struct {
	yes   bool // the node has given, renewed or written
	token driver.Token
}

// phase is what a client does.
type phase uint8

const (
	idle phase = iota
	trying
	holding
)

// client is a client with its attempt, or with its hold and the renewal of it.
type client struct {
	phase    phase
	renewing bool
	attempts int8 // that are left
	renewals int8
	missed   int8 // ticks that its clock has missed
	owner    owner
	attempt  vote.Attempt
	high     [nodes]driver.Token // what votes have brought
	renewal  vote.Renewal
	until    driver.Instant
	token    driver.Token
	before   driver.Token // the highest that was granted before the attempt
	asked    [nodes]exchange
}

// world is a state.
type world struct {
	*setup
	left    budget
	now     int // ticks since the beginning
	nodes   [nodes]node
	client  [most]client
	stray   [owners + 1]vote.Set // nodes to which a request is on its way that its client has forgotten
	granted driver.Token         // the highest so far
	all     uint64               // all that were granted, where they are small
	err     error
}

func (s *setup) model() explore.Model[*world, [2]uint64] {
	w := &world{setup: s, left: s.budget, now: past}
	for i := range w.nodes {
		w.nodes[i] = node{last: s.start[i], ahead: s.skew[i]}
		w.begins(i, 0)
	}
	for i := range s.clients {
		w.client[i].attempts, w.client[i].renewals = s.attempts, s.renewals
	}
	w = w.play(s.prefix...)
	return explore.Model[*world, [2]uint64]{
		Start: w,
		Key: func(w *world) [2]uint64 {
			b := w.key()
			return [2]uint64{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
		},
		Next:  (*world).next,
		Check: (*world).check,
	}
}

// play takes the steps with these names.
func (w *world) play(names ...string) *world {
	for _, name := range names {
		steps := w.next()
		i := slices.IndexFunc(steps, func(s explore.Step[*world]) bool { return s.Name == name })
		if i < 0 {
			panic("no such step: " + name)
		}
		w = steps[i].To
	}
	return w
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// at returns the time by a client's clock.
func (w *world) at(c int) driver.Instant {
	return driver.Instant(w.now-int(w.client[c].missed)) * driver.Instant(tick)
}

// clock returns the time by a node's clock.
func (w *world) clock(n int) int { return w.now + int(w.nodes[n].ahead) }

// nodeAt is clock, as an instant.
func (w *world) nodeAt(n int) driver.Instant {
	return driver.Instant(w.clock(n)) * driver.Instant(tick)
}

// present is the life of every node: what it forgets, it forgets with all its memory.
const present = "life"

// begins makes a node begin its life, which has forgotten nothing since an instant.
func (w *world) begins(n int, since driver.Instant) {
	no := &w.nodes[n]
	no.memory = no.memory.Begin(present, since, w.nodeAt(n), life.Rules{MaxTTL: ttl})
}

// opens reports whether a node grants.
func (w *world) opens(n int) bool {
	closed, begun := w.nodes[n].memory.Closed(present, w.nodeAt(n))
	if !begun { // its clock was set back
		w.begins(n, w.nodeAt(n))
	}
	return !w.forgets || begun && closed == 0
}

// believes reports whether a client believes that it holds the name.
func (w *world) believes(c int) bool {
	return w.client[c].phase == holding && w.at(c) < w.client[c].until
}

// over reports whether an owner's attempt has failed, or its hold has ended.
func (w *world) over(o owner) bool { return w.client[int(o-1)/attempts].owner != o }

// check returns what is wrong with a world.
func (w *world) check() error {
	if w.err != nil {
		return w.err
	}
	believer := -1
	for c := range w.clients {
		if !w.believes(c) {
			continue
		}
		if believer >= 0 && !w.wild {
			return errors.New("P1: two clients believe that they hold the name")
		}
		believer = c
	}
	return nil
}
