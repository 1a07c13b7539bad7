// Package vote decides, for one client, what the answers of the nodes of a quorum mean: whether an attempt to take a
// name has a majority, whether a hold is extended, and which votes are withdrawn. It has no clock, goroutine or
// socket: answers go in, each with its time, and what to do comes out. Its values are plain and comparable, so the
// tests explore every order of events.
//
// The algorithm is Redlock, as its authors published it. Added are restored votes ([Renewal]) and fencing tokens
// ([Attempt]). A node that may have forgotten votes gives none until they have ended: that is the matter of its
// driver (package life).
package vote

import (
	"math/bits"
	"time"

	"github.com/holdfastlock/holdfast/internal/life"
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
	Nodes  int  // from 1 to MaxNodes
	Tokens bool // grants have fencing tokens
}

// Majority returns how many nodes are more than half of them.
func (r Rules) Majority() int { return r.Nodes/2 + 1 }

// All returns the set of all nodes.
func (r Rules) All() Set { return 1<<r.Nodes - 1 }

// majority reports whether the set has more than half of the nodes.
func (r Rules) majority(s Set) bool { return s.Len() >= r.Majority() }

// Valid returns how long a hold may be trusted, counted from before its requests were sent.
func Valid(ttl time.Duration) time.Duration { return ttl - life.Drift(ttl) }
