package quorum

import (
	"context"
	"math"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// hold is what this client knows of one hold, or of an attempt that may become one: driver.Grant.Handle. Its
// mutex guards the attempts to take and renew it, too.
type hold struct {
	mu      sync.Mutex
	ballots []ballot // by node
	taken   driver.Instant
	until   driver.Instant // the end of the hold's validity; 0: not granted
	token   driver.Token   // what the nodes are to have on record; 0: none
	over    bool           // released or withdrawn: no vote is asked for any more
	foreign bool           // this client has not taken it, and knows nothing of it
}

// ballot is the vote of one node.
type ballot struct {
	state  state
	token  driver.Token  // what the node gave, or was told to record
	raised bool          // the node was told
	handle any           // the node's own
	freed  error         // what the node said when it was asked to give the vote up, if that is why it is absent
	asking chan struct{} // asked: closed when the node answers
}

// state says whether a node has the vote.
type state uint8

const (
	absent state = iota // certainly not
	asked               // a request for it is under way
	maybe               // a request for it has got no answer
	given
)

// begin notes that a node is asked for its vote. A renewal may ask it again before it has answered.
func (h *hold) begin(node int) {
	b := &h.ballots[node]
	if b.state = asked; b.asking == nil {
		b.asking = make(chan struct{})
	}
}

// underWay returns the nodes that have not answered a request for their votes, if a majority has. When
// they answer, a hold that is over gives the vote back. A withdrawal now might come before the request, and
// would leave a tombstone, which costs the store more than a hold.
func (h *hold) underWay(rules vote.Rules) (set vote.Set) {
	for i := range h.ballots {
		if h.ballots[i].state == asked {
			set |= vote.Of(i)
		}
	}
	if (rules.All() &^ set).Len() < rules.Majority() {
		return 0
	}
	return set
}

// answered takes in a node's answer to the request for its vote. A vote for a hold that is over is withdrawn.
func (h *hold) answered(n *node, r driver.Request, g driver.Grant, answer vote.Answer) {
	b := &h.ballots[n.index]
	if b.asking != nil {
		close(b.asking)
	}
	switch answer {
	case vote.Given:
		*b = ballot{state: given, token: g.Token, handle: g.Handle}
	case vote.Refused:
		*b = ballot{}
	default:
		b.state, b.asking = maybe, nil
	}
	if part, may := h.grant(n.index, driver.Grant{Request: r}); h.over && may {
		n.owe(h, part)
	}
}

// gaveUp takes in that the node has no vote any more: nil, or why it had none before. A release that finds a
// majority only in several attempts then asks only the nodes that have not confirmed it yet.
func (h *hold) gaveUp(node int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := &h.ballots[node]; b.state != asked {
		*b = ballot{freed: why}
	}
}

// settled waits until the node has answered a request for its vote that is under way, or ctx ends. Then it
// returns grant of the node.
func (h *hold) settled(ctx context.Context, node int, g driver.Grant) (driver.Grant, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if asking := h.ballots[node].asking; asking != nil {
		h.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	return h.grant(node, g)
}

// grant returns the hold as the node knows it, and false if the node certainly does not have it. A vote
// that may be there is withdrawn by token 0.
func (h *hold) grant(node int, g driver.Grant) (driver.Grant, bool) {
	b := &h.ballots[node]
	g.Token, g.Block, g.Handle, g.HandedOver, g.Raised = b.token, 1, b.handle, false, b.raised
	switch {
	case b.state != given:
		g.Token, g.Handle, g.Raised = 0, nil, false
	case h.until == 0:
		// Not granted: the request of which package holdfast has no answer is the hold's own, and the node has
		// answered it. So it needs no tombstone.
		g.Stray = false
	}
	return g, b.state != absent
}

// raise returns the hold as the node is to record it: with the token of all nodes.
func (h *hold) raise(node int, g driver.Grant) driver.Grant {
	b := &h.ballots[node]
	b.raised = b.raised || b.token != h.token
	b.token = h.token
	g, _ = h.grant(node, g)
	g.Token, g.Raised = h.token, true
	return g
}

// record has the node record the hold's token, and tells wrote the outcome, under the hold's mutex.
func (h *hold) record(n *node, g driver.Grant, wrote func(error)) {
	part := h.raise(n.index, g)
	ok := n.q.spawn(func() {
		ctx, cancel := n.q.within(n.q.patience(g.TTL))
		defer cancel()
		err := n.renew(ctx, []driver.Grant{part})[0].Err
		h.mu.Lock()
		defer h.mu.Unlock()
		wrote(err)
	})
	if !ok {
		wrote(driver.ErrClosed)
	}
}

// withdraw withdraws the votes of some nodes that may have one and have answered. An undone acquire has no
// minimum hold.
func (h *hold) withdraw(q *quorum, nodes vote.Set, r driver.Request) {
	h.over, r.MinHold = true, 0
	for i, n := range q.nodes {
		if g, may := h.grant(i, driver.Grant{Request: r}); may && nodes.Has(i) && h.ballots[i].state != asked {
			n.owe(h, g)
		}
	}
}

// holdOf returns the hold of a grant. One that comes from elsewhere may have a vote at each node; of such a
// hold no vote is restored.
func (q *quorum) holdOf(g driver.Grant) *hold {
	if h, ok := g.Handle.(*hold); ok {
		return h
	}
	h := &hold{ballots: make([]ballot, len(q.nodes)), until: math.MaxInt64, token: g.Token, over: true, foreign: true}
	for i := range h.ballots {
		h.ballots[i].state = maybe
	}
	return h
}
