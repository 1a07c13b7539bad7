package quorum

import (
	"context"
	"math"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// hold is what this client knows of one hold, or of an attempt that may become one: driver.Grant.Handle.
type hold struct {
	mu      sync.Mutex
	ballots []ballot // by node
	taken   driver.Instant
	until   driver.Instant // the end of the hold's validity
	token   driver.Token   // what the nodes are to have on record; 0: none
	over    bool           // released or withdrawn: no vote is asked for any more
	foreign bool           // this client has not taken it, and knows nothing of it
	news    chan struct{}  // closed when a node answers a request for its vote; nil: nobody waits for that
}

// ballot is the vote of one node.
type ballot struct {
	state  state
	token  driver.Token // what the node gave, or was told to record
	raised bool         // the node was told
	handle any          // the node's own
	freed  error        // what the node said when it was asked to give the vote up, if that is why it is absent
}

// state says whether a node has the vote.
type state uint8

const (
	absent state = iota // certainly not
	asked               // a request for it is under way
	maybe               // a request for it has got no answer
	given
)

// begin notes that nodes are asked for their votes.
func (h *hold) begin(nodes vote.Set) {
	for i := range h.ballots {
		if nodes.Has(i) {
			h.ballots[i].state = asked
		}
	}
}

// underWay returns the nodes that have not answered a request for their votes, if a majority has. When
// they answer, a hold that is over gives the vote back: see attempt.ask. A withdrawal now might come before the
// request, and would leave a tombstone, which costs the store more than a hold.
func (h *hold) underWay(rules vote.Rules) vote.Set {
	var set vote.Set
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

// answered takes in a node's answer to the request for its vote.
func (h *hold) answered(node int, g driver.Grant, answer vote.Answer) {
	b := &h.ballots[node]
	if h.news != nil {
		close(h.news)
		h.news = nil
	}
	switch answer {
	case vote.Given:
		*b = ballot{state: given, token: g.Token, handle: g.Handle}
	case vote.Refused:
		*b = ballot{}
	default:
		b.state = maybe
	}
}

// gaveUp takes in that the node has no vote any more: nil, or why it had none before. Suppose the nodes are so slow that
// a release finds a majority of them only in several attempts. Then each attempt asks only those that have not
// confirmed it yet.
func (h *hold) gaveUp(node int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := &h.ballots[node]; b.state != asked {
		*b = ballot{freed: why}
	}
}

// settled waits until the node has answered the request for its vote that is under way, if there is one, or ctx
// ends.
func (h *hold) settled(ctx context.Context, node int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.ballots[node].state == asked && ctx.Err() == nil {
		if h.news == nil {
			h.news = make(chan struct{})
		}
		news := h.news
		h.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
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
