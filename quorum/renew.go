package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// renewing is the renewal of one hold. The hold's mutex guards it.
type renewing struct {
	q     *quorum
	grant driver.Grant
	hold  *hold
	vote  vote.Renewal
	errs  []error             // by node
	done  chan driver.Renewal // gets the outcome
}

// Renew implements driver.Driver. It returns when a majority has renewed or refused each hold.
func (q *quorum) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	results := make([]driver.Renewal, len(grants))
	all, err := make([]*renewing, len(grants)), q.alive(ctx)
	ttl, now := time.Duration(0), q.clock.Now()
	for i, g := range grants {
		h := q.holdOf(g)
		h.mu.Lock()
		all[i] = &renewing{
			q: q, grant: g, hold: h, vote: q.rules.Renew(g.TTL, h.until, now),
			errs: make([]error, len(q.nodes)), done: make(chan driver.Renewal, 1),
		}
		h.mu.Unlock()
		if results[i].Err = err; ttl == 0 || g.TTL < ttl {
			ttl = g.TTL
		}
	}
	if err != nil || len(grants) == 0 {
		return results
	}
	q.all(q.patience(ttl), func(ctx context.Context, n *node) { n.renewAll(ctx, all) })
	for i, r := range all {
		select {
		case results[i] = <-r.done:
		case <-ctx.Done():
			results[i].Err = ctx.Err()
		}
	}
	return results
}

// renewAll has the node renew all holds. The node is asked for its life after its answers, because the same
// life now is the same life then. A node that restarted without memory may have given the vote again, to a
// request that was under way for long, and renews it: that vote must not count.
func (n *node) renewAll(ctx context.Context, all []*renewing) {
	parts := make([]driver.Grant, len(all))
	for i, r := range all {
		r.hold.mu.Lock()
		if r.hold.token != 0 {
			parts[i] = r.hold.raise(n.index, r.grant)
		} else {
			parts[i], _ = r.hold.grant(n.index, r.grant)
		}
		r.hold.mu.Unlock()
	}
	renewals := n.renew(ctx, parts)
	memory, _ := n.learn(ctx)
	for i, r := range all {
		r.answered(n, renewals[i], memory)
	}
}

// answered takes in a node's answer to the renewal.
func (r *renewing) answered(n *node, renewal driver.Renewal, memory vote.Memory) {
	r.hold.mu.Lock()
	defer r.hold.mu.Unlock()
	r.errs[n.index] = renewal.Err
	kept := vote.Unknown
	switch err := renewal.Err; {
	case err == nil:
		kept = vote.Renewed
		r.vote.Trust(renewal.Valid)
	case errors.Is(err, driver.ErrBroken):
		kept = vote.Broken
	case driver.Gone(err):
		kept = vote.Gone
	}
	r.do(r.vote.Answer(n.index, kept, memory, r.q.clock.Now()))
}

// do does what the vote says.
func (r *renewing) do(step vote.Step) {
	switch step.Do {
	case vote.Extend:
		r.hold.until = max(r.hold.until, r.vote.Until())
		r.done <- driver.Renewal{Since: r.vote.Sent, Valid: vote.Valid(r.vote.TTL)}
		r.each(step.Nodes, r.restore)
	case vote.Restore:
		r.each(step.Nodes, r.restore)
	case vote.Write:
		r.each(step.Nodes, func(n *node) {
			r.hold.record(n, r.grant, func(err error) {
				r.errs[n.index] = err
				r.do(r.vote.Wrote(n.index, err == nil, r.q.clock.Now()))
			})
		})
	case vote.Lose:
		err := driver.ErrNotHeld
		if r.vote.Broken != 0 {
			err = driver.ErrBroken
		}
		if r.done <- (driver.Renewal{Err: err}); !r.hold.foreign {
			r.hold.until = min(r.hold.until, r.q.clock.Now())
			r.hold.withdraw(r.q, step.Nodes, r.grant.Request)
		}
	case vote.Fail:
		var errs []error
		for _, err := range r.errs {
			if err != nil {
				errs = append(errs, plain(err))
			}
		}
		r.done <- driver.Renewal{Err: fmt.Errorf("renewed by %d of %d nodes: %w", r.vote.Counted.Len(), len(r.q.nodes), errors.Join(errs...))}
	}
}

func (r *renewing) each(nodes vote.Set, f func(*node)) {
	for _, n := range r.q.nodes {
		if nodes.Has(n.index) {
			f(n)
		}
	}
}

// restore asks a node for its vote again, in the background.
func (r *renewing) restore(n *node) {
	h, request := r.hold, r.grant.Request
	request.Tokens, request.MinHold = 1, max(0, request.MinHold-r.q.clock.Now().Sub(h.taken))
	restored := func(answer vote.Answer, m vote.Memory, err error) {
		r.errs[n.index] = err
		r.do(r.vote.Restored(n.index, answer, m, r.q.clock.Now()))
	}
	if h.over { // released
		restored(vote.Refused, vote.Memory{}, driver.ErrNotHeld)
		return
	}
	h.begin(n.index)
	ok := r.q.spawn(func() {
		ctx, cancel := r.q.within(r.q.patience(request.TTL))
		defer cancel()
		g, answer, memory, err := n.vote(ctx, request)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answered(n, request, g, answer)
		if answer == vote.Refused && !errors.Is(err, driver.ErrHeld) && !driver.Gone(err) {
			answer = vote.Lost // it may give its vote later
		}
		if answer == vote.Given {
			r.vote.Trust(g.Valid)
		}
		restored(answer, memory, err)
	})
	if !ok {
		h.ballots[n.index] = ballot{}
		restored(vote.Lost, vote.Memory{}, driver.ErrClosed)
	}
}

// renew has the node renew holds, and record their tokens, if they have some.
func (n *node) renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	d, err := n.get(ctx)
	switch {
	case err == nil && n.q.rules.Tokens:
		renewals = driver.Forward{Driver: d}.Raise(ctx, grants)
	case err == nil:
		renewals = d.Renew(ctx, grants)
	}
	for i := range renewals {
		if err != nil {
			renewals[i].Err = err
		} else if e := renewals[i].Err; e != nil {
			renewals[i].Err = fmt.Errorf("node %s: %w", n.name, e)
		}
	}
	return renewals
}
