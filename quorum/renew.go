package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// renewing is one call of Renew.
type renewing struct {
	q         *quorum
	grants    []driver.Grant
	holds     []*hold
	done      chan struct{} // closed when every renewal is decided
	mu        sync.Mutex
	votes     []vote.Renewal
	results   []driver.Renewal
	errs      [][]error // by grant and node
	undecided int
}

// errUndecided is the outcome of a renewal that is under way.
var errUndecided = errors.New("no answer yet")

// Renew implements driver.Driver. It returns when a majority has renewed or refused each hold.
func (q *quorum) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	r := &renewing{
		q: q, grants: grants, holds: make([]*hold, len(grants)), done: make(chan struct{}),
		votes: make([]vote.Renewal, len(grants)), results: make([]driver.Renewal, len(grants)),
		errs: make([][]error, len(grants)), undecided: len(grants),
	}
	err := q.alive(ctx)
	ttl := time.Duration(0)
	now := q.clock.Now()
	for i, g := range grants {
		if r.results[i].Err = err; err == nil {
			r.results[i].Err = errUndecided
		}
		r.holds[i], r.errs[i] = q.holdOf(g), make([]error, len(q.nodes))
		r.holds[i].mu.Lock()
		r.votes[i] = q.rules.Renew(g.TTL, r.holds[i].until, now)
		r.holds[i].mu.Unlock()
		if ttl == 0 || g.TTL < ttl {
			ttl = g.TTL
		}
	}
	if err != nil || len(grants) == 0 {
		return r.results
	}
	q.all(q.patience(ttl), r.ask)
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	results := slices.Clone(r.results)
	for i := range results {
		if results[i].Err == errUndecided {
			results[i].Err = ctx.Err()
		}
	}
	return results
}

// ask has one node renew all holds, and restore the votes that it has lost.
func (r *renewing) ask(ctx context.Context, n *node) {
	parts := make([]driver.Grant, len(r.grants))
	for i, g := range r.grants {
		r.holds[i].mu.Lock()
		if r.holds[i].token != 0 {
			parts[i] = r.holds[i].raise(n.index, g)
		} else {
			parts[i], _ = r.holds[i].grant(n.index, g)
		}
		r.holds[i].mu.Unlock()
	}
	renewals := n.renew(ctx, parts)
	memory := n.lived(ctx)
	now := r.q.clock.Now()
	for i := range renewals {
		kept := vote.Unknown
		switch err := renewals[i].Err; {
		case err == nil:
			kept = vote.Renewed
		case errors.Is(err, driver.ErrBroken):
			kept = vote.Broken
		case driver.Gone(err):
			kept = vote.Gone
		}
		r.mu.Lock()
		r.errs[i][n.index] = renewals[i].Err
		if kept == vote.Renewed {
			r.votes[i].Trust(renewals[i].Valid)
		}
		step := r.votes[i].Answer(n.index, kept, memory, now)
		r.mu.Unlock()
		r.do(i, step)
	}
}

// do does what the vote on one hold says.
func (r *renewing) do(i int, step vote.Step) {
	switch step.Do {
	case vote.Extend:
		h := r.holds[i]
		r.mu.Lock()
		until, valid := r.votes[i].Until(), vote.Valid(r.votes[i].TTL)
		r.mu.Unlock()
		h.mu.Lock()
		h.until = max(h.until, until)
		h.mu.Unlock()
		r.decide(i, driver.Renewal{Since: r.votes[i].Sent, Valid: valid})
		r.restore(i, step.Nodes)
	case vote.Restore:
		r.restore(i, step.Nodes)
	case vote.Write:
		r.write(i, step.Nodes)
	case vote.Lose:
		r.decide(i, driver.Renewal{Err: r.gone(i)})
		r.q.forget(r.holds[i], r.grants[i])
	case vote.Fail:
		r.decide(i, driver.Renewal{Err: r.failure(i)})
	}
}

// decide sets the outcome of one renewal.
func (r *renewing) decide(i int, result driver.Renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[i] = result
	if r.undecided--; r.undecided == 0 {
		close(r.done)
	}
}

// gone returns why a hold is lost.
func (r *renewing) gone(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.votes[i].Broken != 0 {
		return driver.ErrBroken
	}
	return driver.ErrNotHeld
}

// failure returns why a hold could not be renewed. The error is not that of one node that does not have
// the vote.
func (r *renewing) failure(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := slices.Clone(r.errs[i])
	for n, err := range errs {
		if driver.Gone(err) || errors.Is(err, driver.ErrHeld) {
			errs[n] = errors.New(err.Error())
		}
	}
	return fmt.Errorf("renewed by %d of %d nodes: %w", r.votes[i].Counted.Len(), len(r.q.nodes), errors.Join(errs...))
}

// restore asks nodes for their votes again, in the background.
func (r *renewing) restore(i int, nodes vote.Set) {
	h := r.holds[i]
	for _, n := range r.q.nodes {
		if !nodes.Has(n.index) {
			continue
		}
		r.q.spawn(func() {
			h.mu.Lock()
			if h.over { // released
				h.mu.Unlock()
				r.restored(i, n, vote.Refused, vote.Memory{}, driver.ErrNotHeld)
				return
			}
			h.begin(vote.Of(n.index))
			now := r.q.clock.Now()
			request := r.grants[i].Request
			request.Tokens = 1
			request.MinHold = max(0, request.MinHold-now.Sub(h.taken))
			h.mu.Unlock()
			ctx, cancel := r.q.within(r.q.patience(request.TTL))
			defer cancel()
			g, answer, memory, err := n.try(ctx, request)
			h.mu.Lock()
			h.answered(n.index, g, answer)
			over := h.over
			part, may := h.grant(n.index, driver.Grant{Request: request})
			h.mu.Unlock()
			if over && may {
				n.owe(h, part)
			}
			if answer == vote.Refused && !errors.Is(err, driver.ErrHeld) && !driver.Gone(err) {
				answer = vote.Lost // it may give its vote later
			}
			if answer == vote.Given {
				r.mu.Lock()
				r.votes[i].Trust(g.Valid)
				r.mu.Unlock()
			}
			r.restored(i, n, answer, memory, err)
		})
	}
}

// restored takes in a node's answer to the request for its vote.
func (r *renewing) restored(i int, n *node, answer vote.Answer, m vote.Memory, err error) {
	r.mu.Lock()
	r.errs[i][n.index] = err
	step := r.votes[i].Restored(n.index, answer, m, r.q.clock.Now())
	r.mu.Unlock()
	r.do(i, step)
}

// write has nodes that have restored their votes record the token.
func (r *renewing) write(i int, nodes vote.Set) {
	h := r.holds[i]
	for _, n := range r.q.nodes {
		if !nodes.Has(n.index) {
			continue
		}
		h.mu.Lock()
		part := h.raise(n.index, r.grants[i])
		h.mu.Unlock()
		wrote := func(err error) {
			r.mu.Lock()
			r.errs[i][n.index] = err
			step := r.votes[i].Wrote(n.index, err == nil, r.q.clock.Now())
			r.mu.Unlock()
			r.do(i, step)
		}
		ok := r.q.spawn(func() {
			ctx, cancel := r.q.within(r.q.patience(part.TTL))
			defer cancel()
			wrote(n.renew(ctx, []driver.Grant{part})[0].Err)
		})
		if !ok {
			wrote(driver.ErrClosed)
		}
	}
}

// forget withdraws the votes that are left of a hold which is lost.
func (q *quorum) forget(h *hold, g driver.Grant) {
	g.MinHold = 0
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.foreign {
		return
	}
	h.over, h.until = true, min(h.until, q.clock.Now())
	for i, n := range q.nodes {
		if part, ok := h.grant(i, g); ok {
			n.owe(h, part)
		}
	}
}

// renew has the node renew holds, and record their tokens, if they have some.
func (n *node) renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	d, err := n.get(ctx)
	if err == nil {
		renew := d.Renew
		if n.q.rules.Tokens {
			renew = wrap.Forward{Driver: d}.Raise
		}
		renewals = renew(ctx, grants)
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
