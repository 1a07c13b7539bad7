package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// hold is what this client knows of one hold, or of an attempt that may become one: driver.Grant.Handle. Its
// mutex guards the attempts to take and to renew it, too.
type hold struct {
	q       *quorum
	mu      sync.Mutex
	ballots []ballot // by node
	taken   driver.Instant
	until   driver.Instant // the end of the hold's validity; 0: not granted
	token   driver.Token   // what the nodes are to have on record; 0: none
	foreign bool           // this client has not taken it, and knows nothing of it

	// What withdraw sets: no vote is asked for any more.
	over  bool
	valid bool            // the hold was not over by itself
	grant driver.Grant    // what the nodes are to release
	freed context.Context // ends when a majority is free of the hold
	free  context.CancelFunc
}

// ballot is the vote of one node.
type ballot struct {
	vote.Ballot
	token  driver.Token    // what the node gave
	handle any             // the node's own
	owed   bool            // the node is being told of the withdrawal
	said   error           // what the node said when it was told last
	told   context.Context // ends when the node was told, or could not be
	tell   context.CancelFunc
}

// holdOf returns the hold of a grant. One that comes from another client may have a vote at each node; of such a
// hold no vote is restored.
func (q *quorum) holdOf(g driver.Grant) *hold {
	if h, ok := g.Handle.(*hold); ok && h.q == q {
		return h
	}
	h := &hold{q: q, ballots: make([]ballot, len(q.nodes)), until: math.MaxInt64, token: g.Token, foreign: true}
	for i := range h.ballots {
		h.ballots[i].Stray = true
	}
	return h
}

// part returns the hold as it is released at the node. A vote that the node may have, but has not told of, is
// withdrawn by token 0.
func (h *hold) part(node int, g driver.Grant) driver.Grant {
	b := &h.ballots[node]
	g.Token, g.Block, g.Handle, g.HandedOver = 0, 1, nil, false
	// The request of which package holdfast has no answer is the hold's own. If the node has answered it, the
	// withdrawal needs no tombstone.
	g.Stray = b.Stray || g.Stray && h.until != 0
	if b.Held {
		if g.Token = cmp.Or(h.token, b.token); g.Token == b.token {
			g.Handle = b.handle
		}
	}
	return g
}

// renewed returns the hold as it is renewed at the node, which then has the token of all nodes on record.
func (h *hold) renewed(n *node, g driver.Grant) driver.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	g = h.part(n.index, g)
	g.Token = cmp.Or(h.token, g.Token)
	return g
}

// ask asks a node for its vote, unless the hold is over or the node is being asked.
func (h *hold) ask(ctx context.Context, n *node, r driver.Request) (vote.Reply, error) {
	h.mu.Lock()
	ask := !h.over && h.ballots[n.index].Ask()
	h.mu.Unlock()
	if !ask {
		return vote.Reply{}, nil
	}
	g, reply, err := n.vote(ctx, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &h.ballots[n.index]
	b.Answered(reply.Answer)
	b.token, b.handle = g.Token, g.Handle
	if h.over {
		h.owe(n)
		h.settle()
	}
	return reply, err
}

// withdraw ends the hold, and has the nodes give up the votes for it in the background, until each has confirmed
// that or the TTL is over (P5, P6).
func (h *hold) withdraw(g driver.Grant) {
	if h.grant = g; !h.over {
		h.over, h.valid = true, driver.HostClock.Now() < h.until
		h.freed, h.free = context.WithCancel(context.Background())
		for i := range h.ballots {
			b := &h.ballots[i]
			b.told, b.tell = context.WithCancel(context.Background())
		}
		h.q.leaves(h, false)
	}
	for _, n := range h.q.nodes {
		h.owe(n)
	}
	h.settle()
}

// owe has the node give up its vote in the background, if it may have one. If too many are withdrawn from the node
// at the same time, the vote ends with its TTL (P9).
func (h *hold) owe(n *node) {
	b := &h.ballots[n.index]
	if !b.Owed() || b.owed {
		return
	}
	if n.owed.Load() >= 4096 {
		b.said = n.says(errors.New("too many votes are being withdrawn"))
		return
	}
	b.owed = true
	n.owed.Add(1)
	end := driver.HostClock.Now().Add(h.grant.TTL)
	h.q.calls.Go(func() {
		defer n.owed.Add(-1)
		backoff := pause.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
		for !h.leave(n, end) {
			pause.Sleep(h.q.closing, backoff.Next())
		}
	})
}

// leave has the node give up its vote, once. It returns false if that is to be repeated.
func (h *hold) leave(n *node, end driver.Instant) bool {
	h.mu.Lock()
	part := h.part(n.index, h.grant)
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.q.life, h.q.patience(part.TTL))
	defer cancel()
	d, err := n.get(ctx)
	if err == nil {
		err = d.Release(ctx, []driver.Grant{part})[0]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &h.ballots[n.index]
	if b.said = n.says(err); err == nil || driver.Gone(err) {
		b.Withdrawn()
	}
	h.settle()
	b.owed = !b.Free() && h.q.closing.Err() == nil && driver.HostClock.Now() < end
	return !b.owed
}

// settle ends what waits until a majority is free of the hold, and until a node was told that it is over.
func (h *hold) settle() {
	free, told := 0, 0
	for i := range h.ballots {
		b := &h.ballots[i]
		if b.Free() {
			free++
		}
		if b.Free() || b.said != nil {
			told++
			b.tell()
		}
	}
	if free >= h.q.rules.Majority() {
		h.free()
	}
	if told == len(h.ballots) {
		h.q.leaves(h, true)
	}
}

// Release implements driver.Driver. A hold is released when a majority of the nodes is free of it. The
// others are told in the background.
func (q *quorum) Release(ctx context.Context, grants []driver.Grant) []error {
	if err := q.enter(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	defer q.calls.Done()
	errs := make([]error, len(grants))
	holds, ttl := make([]*hold, len(grants)), time.Duration(0)
	for i, g := range grants {
		h := q.holdOf(g)
		h.mu.Lock()
		h.withdraw(g)
		h.mu.Unlock()
		holds[i], ttl = h, max(ttl, g.TTL)
	}
	late, cancel := context.WithTimeout(ctx, q.patience(ttl))
	defer cancel()
	for i, h := range holds {
		select {
		case <-h.freed.Done():
		case <-late.Done():
		case <-q.life.Done():
		}
		errs[i] = h.released()
	}
	return errs
}

// released returns what became of a release. Package holdfast repeats one that has failed. If the hold was valid,
// nobody else can have had the name, whatever votes the nodes have forgotten.
func (h *hold) released() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	free, gone, broken := 0, 0, false // nodes that are free of the hold; of these, those that had not had it
	for i := range h.ballots {
		switch b := &h.ballots[i]; {
		case !b.Free():
			errs = append(errs, b.said)
		case b.said != nil:
			free, gone, broken = free+1, gone+1, broken || errors.Is(b.said, driver.ErrBroken)
		default:
			free++
		}
	}
	needed := h.q.rules.Majority()
	switch {
	case free < needed:
		return fmt.Errorf("released at %d of %d nodes: %w", free, len(h.ballots), errors.Join(errs...))
	case gone < needed || h.foreign || h.until == 0: // one that was not granted may have been withdrawn before
	case broken:
		return driver.ErrBroken
	case !h.valid:
		return driver.ErrNotHeld
	}
	return nil
}
