package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// ending is one grant that is released.
type ending struct {
	freed  int     // nodes that certainly do not have the vote any more
	gone   int     // of these, those that had not had it before
	broken bool    // at one of these an operator broke it
	asked  bool    // it was never granted, so its votes may have been taken back already
	valid  bool    // nobody else can have had it, whatever votes the nodes have forgotten
	left   int     // nodes that have not answered
	errs   []error // of nodes that may still have it
	done   bool
	err    error
}

// without counts a node that does not have the vote any more, or had none before, and why.
func (e *ending) without(why error) {
	e.freed++
	if why != nil {
		e.gone++
		e.broken = e.broken || errors.Is(why, driver.ErrBroken)
	}
}

// Release implements driver.Driver. A hold is released when a majority of the nodes is free of it. The
// others are asked in the background, until they confirm it or the TTL is over.
func (q *quorum) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	if err := q.alive(ctx); err != nil || len(grants) == 0 {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	// What each node is to release, and of which grants that is; and the grants for which it has not answered yet.
	batches, of, late := make([][]driver.Grant, len(q.nodes)), make([][]int, len(q.nodes)), make([][]int, len(q.nodes))
	endings := make([]ending, len(grants))
	ttl := time.Duration(0)
	for i, g := range grants {
		ttl = max(ttl, g.TTL)
		h := q.holdOf(g)
		h.mu.Lock()
		h.over = true
		endings[i].asked = h.until == 0
		endings[i].valid = !h.foreign && q.clock.Now() < h.until
		underWay := h.underWay(q.rules)
		for n := range q.nodes {
			part, ok := h.grant(n, g)
			if underWay.Has(n) {
				continue
			}
			if !ok {
				endings[i].without(h.ballots[n].freed)
				continue
			}
			endings[i].left++
			if h.ballots[n].state == asked {
				late[n] = append(late[n], i)
				continue
			}
			batches[n], of[n] = append(batches[n], part), append(of[n], i)
		}
		h.mu.Unlock()
	}
	r := &releasing{q: q, grants: grants, endings: endings, undecided: len(grants), done: make(chan struct{})}
	r.mu.Lock()
	for i := range endings {
		r.decide(i)
	}
	r.mu.Unlock()
	q.all(q.patience(ttl), func(nodes context.Context, n *node) {
		if i := n.index; len(batches[i]) > 0 {
			r.answer(n, batches[i], of[i], n.release(nodes, batches[i]))
		}
		for _, i := range late[n.index] {
			r.releaseLate(nodes, n, i)
		}
	})
	var ended error
	select {
	case <-r.done:
	case <-ctx.Done():
		ended = ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range endings {
		if errs[i] = endings[i].err; !endings[i].done {
			errs[i] = ended
			endings[i].done, endings[i].err = true, ended // package holdfast releases it again
		}
	}
	return errs
}

// releasing is one call of Release.
type releasing struct {
	q         *quorum
	grants    []driver.Grant
	done      chan struct{} // closed when all endings are decided
	mu        sync.Mutex
	endings   []ending
	undecided int
}

// releaseLate has the node release a grant for which it has not answered yet. It waits for the answer: a
// withdrawal that comes before the request leaves a tombstone, and while a node has tombstones for a name, all
// requests for it take longer.
func (r *releasing) releaseLate(ctx context.Context, n *node, i int) {
	g := r.grants[i]
	h := r.q.holdOf(g)
	h.settled(ctx, n.index)
	h.mu.Lock()
	part, ok := h.grant(n.index, g)
	h.mu.Unlock()
	err := error(nil)
	if ok {
		err = n.release(ctx, []driver.Grant{part})[0]
	}
	r.answer(n, []driver.Grant{part}, []int{i}, []error{err})
}

// answer takes in what a node says to a batch.
func (r *releasing) answer(n *node, batch []driver.Grant, of []int, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j, err := range errs {
		e := &r.endings[of[j]]
		e.left--
		switch {
		case err == nil, driver.Gone(err):
			r.q.holdOf(r.grants[of[j]]).gaveUp(n.index, err)
			e.without(err)
		default:
			e.errs = append(e.errs, err)
			// Package holdfast repeats a release that has failed. One that a majority has confirmed is
			// repeated here where it has not arrived.
			n.owe(r.q.holdOf(r.grants[of[j]]), batch[j])
		}
		r.decide(of[j])
	}
}

// decide ends the release of one grant, if enough nodes have answered.
func (r *releasing) decide(i int) {
	e := &r.endings[i]
	needed := r.q.rules.Majority()
	if e.done || e.freed < needed && e.left > 0 {
		return
	}
	e.done = true
	switch {
	case e.freed < needed:
		e.err = fmt.Errorf("released at %d of %d nodes: %w", e.freed, len(r.q.nodes), errors.Join(e.errs...))
	case e.gone < needed || r.grants[i].Handle == nil || e.asked:
	case e.broken:
		e.err = driver.ErrBroken
	case !e.valid:
		e.err = driver.ErrNotHeld
	}
	if r.undecided--; r.undecided == 0 {
		close(r.done)
	}
}

// release has the node release grants.
func (n *node) release(ctx context.Context, grants []driver.Grant) []error {
	d, err := n.get(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	errs := d.Release(ctx, grants)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("node %s: %w", n.name, err)
		}
	}
	return errs
}

// owed is a vote that a node may have and must not keep.
type owed struct {
	hold  *hold
	grant driver.Grant
	until driver.Instant // it ends by itself
}

// maxOwed is how many withdrawals a node is owed at most. Further votes end with their TTL.
const maxOwed = 4096

// owe withdraws a vote in the background: until the node confirms it, or the TTL is over.
func (n *node) owe(h *hold, g driver.Grant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.owed) >= maxOwed {
		return
	}
	n.owed = append(n.owed, owed{h, g, n.q.clock.Now().Add(g.TTL)})
	if len(n.owed) == 1 && !n.q.spawn(n.repay) {
		n.owed = nil
	}
}

// The pauses between two attempts to withdraw votes.
const (
	firstRepay = 10 * time.Millisecond
	lastRepay  = time.Second
)

// repay withdraws the votes that are owed, until there are none.
func (n *node) repay() {
	pause := time.Duration(0)
	for {
		n.mu.Lock()
		now := n.q.clock.Now()
		n.owed = slices.DeleteFunc(n.owed, func(o owed) bool { return pause > 0 && now > o.until })
		batch, holds := make([]driver.Grant, len(n.owed)), make([]*hold, len(n.owed))
		ttl := time.Duration(0)
		for i, o := range n.owed {
			batch[i], holds[i], ttl = o.grant, o.hold, max(ttl, o.grant.TTL)
		}
		if len(batch) == 0 || n.q.life.Err() != nil || pause > 0 && n.q.closing.Err() != nil {
			n.owed = nil
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		ctx, cancel := n.q.within(n.q.patience(ttl))
		errs := n.release(ctx, batch)
		cancel()
		for i, err := range errs {
			if err == nil || driver.Gone(err) {
				holds[i].gaveUp(n.index, err)
			}
		}
		failed := n.repaid(errs)
		if pause = min(max(2*pause, firstRepay), lastRepay); !failed {
			pause = 0
			continue
		}
		select {
		case <-time.After(pause):
		case <-n.q.closing.Done():
		}
	}
}

// repaid drops what the node has confirmed, and reports whether something is left. More may have been
// added meanwhile, at the end.
func (n *node) repaid(errs []error) (failed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var rest []owed
	for i, o := range n.owed {
		if i < len(errs) && errs[i] != nil && !driver.Gone(errs[i]) {
			failed = true
		} else if i < len(errs) {
			continue
		}
		rest = append(rest, o)
	}
	n.owed = rest
	return failed
}
