// Package vote decides, for one client, what the answers of the nodes of a quorum mean: whether an attempt to take a
// name has a majority, whether a hold is extended, which nodes may vote at all, and which votes are withdrawn. It
// has no clock, goroutine or socket: answers go in, each with its time, and what to do comes out. Its values are
// plain and comparable, so the tests explore every order of events.
//
// The algorithm is Redlock, as its authors published it. Added are the [Memory] of nodes, restored votes
// ([Renewal]) and fencing tokens ([Attempt]).
package vote

import (
	"math/bits"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// MaxNodes is how many nodes a quorum has at most.
const MaxNodes = 15

// Set is a set of nodes, which are numbered from 0.
type Set uint16

// Of returns the set of one node.
func Of(node int) Set { return 1 << node }

// Has reports whether the node is in the set.
func (s Set) Has(node int) bool { return s&Of(node) != 0 }

// Len returns how many nodes are in the set.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// Rules are what all clients of a quorum agree on.
type Rules struct {
	Nodes  int           // from 1 to MaxNodes
	MaxTTL time.Duration // the longest TTL of this client's holds; 0: no node ever loses its memory
	Tokens bool          // grants have fencing tokens
}

// Majority returns how many nodes are more than half of them.
func (r Rules) Majority() int { return r.Nodes/2 + 1 }

// All returns the set of all nodes.
func (r Rules) All() Set { return 1<<r.Nodes - 1 }

// majority reports whether the set has more than half of the nodes.
func (r Rules) majority(s Set) bool { return s.Len() >= r.Majority() }

// Drift returns by how much the clocks of client and nodes may differ at the end of a time that they
// measure together: a hundredth of it, and 2 ms because a store may round.
func Drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// Valid returns how long a hold may be trusted, counted from before its requests were sent.
func Valid(ttl time.Duration) time.Duration { return ttl - Drift(ttl) }

// Life names the time from a start of a node to its end. A node that comes back with all that it had
// acknowledged goes on in the same life; else it has a new one. 0: not known.
type Life uint64

// Memory is what one client knows of the memory of one node. The zero value is that of a node which has
// not answered yet.
//
// A holds a name by the votes of nodes 1 and 2 of three. Node 2 restarts without memory, and B asks nodes 2
// and 3. If both counted, A and B would hold the name.
//
// So node 2 does not count for B until A's hold must be over, by B's own clock, counted from the first answer of
// node 2's new life. After that B admits the node: B tells it that its present life counts, for all clients.
type Memory struct {
	Life     Life
	Admitted bool           // some client has told the node that this life counts
	Since    driver.Instant // the first answer of this life; only if it was not admitted by then
	Longest  time.Duration  // the longest TTL of a hold of any client, as far as this one has heard from any node
}

// Learn returns the memory after an answer that came now, from a life that was admitted before or not.
func (m Memory) Learn(life Life, admitted bool, now driver.Instant) Memory {
	if m.Life != life || life == 0 {
		m = Memory{Life: life, Since: now, Longest: m.Longest}
	}
	m.Admitted = m.Admitted || admitted
	return m
}

// Counts reports whether a vote counts that was asked for at an instant, and given in the life that m
// knows.
func (r Rules) Counts(m Memory, sent driver.Instant) bool {
	switch {
	case r.MaxTTL == 0 || m.Admitted:
		return true
	case m.Life == 0:
		return false
	}
	r.MaxTTL = max(r.MaxTTL, m.Longest)
	return sent.Sub(m.Since) >= r.Delay()
}

// Delay returns for how long a node that has lost its memory does not count.
func (r Rules) Delay() time.Duration { return r.MaxTTL + Drift(r.MaxTTL) }

// Admit reports whether the client should admit the node's life now.
func (r Rules) Admit(m Memory, now driver.Instant) bool { return !m.Admitted && r.Counts(m, now) }
