package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// renewing is the renewal of one hold. The hold's mutex guards it.
type renewing struct {
	*hold
	of   driver.Grant
	vote vote.Renewal
	errs []error             // by node
	done chan driver.Renewal // gets the outcome
}

// Renew implements driver.Driver. It returns when a majority has renewed or refused each hold.
func (q *quorum) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if err := q.enter(ctx); err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	defer q.calls.Done()
	results := make([]driver.Renewal, len(grants))
	all, ttl, now := make([]*renewing, len(grants)), time.Duration(0), driver.HostClock.Now()
	for i, g := range grants {
		r := &renewing{hold: q.holdOf(g), of: g, errs: make([]error, len(q.nodes)), done: make(chan driver.Renewal, 1)}
		r.mu.Lock()
		r.vote = q.rules.Renew(g.TTL, r.until, now)
		r.mu.Unlock()
		if all[i] = r; ttl == 0 || g.TTL < ttl {
			ttl = g.TTL
		}
	}
	q.each(q.rules.All(), q.patience(ttl), func(ctx context.Context, n *node) { n.renewAll(ctx, all) })
	for i, r := range all {
		select {
		case results[i] = <-r.done:
		case <-ctx.Done():
			results[i].Err = ctx.Err()
		}
	}
	return results
}

// renewAll has the node renew all holds.
func (n *node) renewAll(ctx context.Context, all []*renewing) {
	parts := make([]driver.Grant, len(all))
	for i, r := range all {
		parts[i] = r.renewed(n, r.of)
	}
	renewals := n.renew(ctx, parts)
	for i, r := range all {
		reply := vote.Reply{}
		switch err := renewals[i].Err; {
		case err == nil:
			reply.Answer, reply.Valid = vote.Given, renewals[i].Valid
		case errors.Is(err, driver.ErrBroken):
			reply.Answer = vote.Broken
		case driver.Gone(err):
			reply.Answer = vote.Refused
		}
		r.mu.Lock()
		r.errs[n.index] = renewals[i].Err
		r.do(r.vote.Answer(n.index, reply, driver.HostClock.Now()))
		r.mu.Unlock()
	}
}

// do does what the vote says.
func (r *renewing) do(step vote.Step) {
	switch step.Now {
	case vote.Won:
		r.until = max(r.until, r.vote.Until())
		r.done <- driver.Renewal{Since: r.vote.Sent, Valid: vote.Valid(r.vote.TTL)}
	case vote.Over:
		err := driver.ErrNotHeld
		if r.vote.Broken != 0 {
			err = driver.ErrBroken
		}
		if r.done <- (driver.Renewal{Err: err}); !r.foreign && !r.over {
			lost := r.of
			lost.MinHold = 0
			r.until = min(r.until, driver.HostClock.Now())
			r.withdraw(lost)
		}
	case vote.Failed:
		r.done <- driver.Renewal{Err: fmt.Errorf("renewed by %d of %d nodes: %v", r.vote.Given.Len(), len(r.errs), errors.Join(r.errs...))}
	}
	if !r.over && !r.foreign {
		r.q.each(step.Nodes, r.q.patience(r.of.TTL), r.restore)
	}
}

// restore asks a node for its vote again.
func (r *renewing) restore(ctx context.Context, n *node) {
	request := r.of.Request
	request.Tokens, request.MinHold = 1, max(0, request.MinHold-driver.HostClock.Now().Sub(r.taken))
	r.ask(ctx, n, request)
}
