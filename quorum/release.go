package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// Release implements driver.Driver. A hold is released when a majority of the nodes is free of it. The
// others are asked in the background, until they confirm it or the TTL is over.
func (q *quorum) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	var all sync.WaitGroup
	for i, g := range grants {
		all.Go(func() { errs[i] = q.release(ctx, g) })
	}
	all.Wait()
	return errs
}

func (q *quorum) release(ctx context.Context, g driver.Grant) error {
	if err := q.alive(ctx); err != nil {
		return err
	}
	h := q.holdOf(g)
	var ask vote.Set          // nodes that may have the vote
	var left, freed, gone int // nodes: still to answer; certainly without the vote; of these, without it before
	var broken bool           // at one of these an operator broke it
	without := func(why error) {
		if freed++; why != nil {
			gone++
			broken = broken || errors.Is(why, driver.ErrBroken)
		}
	}
	h.mu.Lock()
	h.over = true
	granted, valid := h.until != 0, !h.foreign && q.clock.Now() < h.until
	underWay := h.underWay(q.rules)
	for i := range q.nodes {
		_, may := h.grant(i, g)
		switch {
		case underWay.Has(i): // the vote is withdrawn when it comes
		case may:
			ask |= vote.Of(i)
			left++
		default:
			without(h.ballots[i].freed)
		}
	}
	h.mu.Unlock()
	answers := make(chan error, len(q.nodes))
	q.all(q.patience(g.TTL), func(ctx context.Context, n *node) {
		if !ask.Has(n.index) {
			return
		}
		part, may := h.settled(ctx, n.index, g)
		var err error
		if may {
			err = n.free(ctx, h, part)
		}
		if err != nil && !driver.Gone(err) {
			// Package holdfast repeats a release that has failed. One that a majority has confirmed is
			// repeated here where it has not arrived.
			n.owe(h, part)
		}
		answers <- err
	})
	var errs []error
	for ; left > 0 && freed < q.rules.Majority(); left-- {
		select {
		case err := <-answers:
			if err == nil || driver.Gone(err) {
				without(err)
			} else {
				errs = append(errs, err)
			}
		case <-ctx.Done():
			return ctx.Err() // package holdfast releases it again
		}
	}
	switch {
	case freed < q.rules.Majority():
		return fmt.Errorf("released at %d of %d nodes: %w", freed, len(q.nodes), errors.Join(errs...))
	case gone < q.rules.Majority() || g.Handle == nil || !granted: // one that was not granted may have been withdrawn
	case broken:
		return driver.ErrBroken
	case !valid: // else nobody can have had the name, whatever votes the nodes have forgotten
		return driver.ErrNotHeld
	}
	return nil
}

// free has the node release its vote, once, and notes when the vote is gone.
func (n *node) free(ctx context.Context, h *hold, g driver.Grant) error {
	d, err := n.get(ctx)
	if err != nil {
		return err
	}
	if err = d.Release(ctx, []driver.Grant{g})[0]; err == nil || driver.Gone(err) {
		h.gaveUp(n.index, err)
		return err
	}
	return fmt.Errorf("node %s: %w", n.name, err)
}

// maxOwed is how many votes are withdrawn from a node at the same time. Further votes end with their TTL.
const maxOwed = 4096

// owe withdraws a vote in the background: until the node confirms it, or the TTL is over.
func (n *node) owe(h *hold, g driver.Grant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owed >= maxOwed {
		return
	}
	end := n.q.clock.Now().Add(g.TTL)
	withdraw := func() {
		var pause backoff
		for {
			ctx, cancel := n.q.within(n.q.patience(g.TTL))
			err := n.free(ctx, h, g)
			cancel()
			if err == nil || driver.Gone(err) || n.q.clock.Now() > end || !pause.rest(n.q) {
				break
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.owed--
	}
	if n.q.spawn(withdraw) {
		n.owed++
	}
}
