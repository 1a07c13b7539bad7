package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// attempt is one Try. The hold's mutex guards it.
type attempt struct {
	*hold
	request driver.Request
	vote    vote.Attempt
	earlier []*hold       // of this client, whose withdrawals come first
	errs    []error       // by node
	decided chan struct{} // closed when the vote is won or over
}

// Try implements driver.Driver. It returns as soon as a majority has given or refused its votes; what is
// still under way then goes on in the background.
func (q *quorum) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Mode == driver.Slot || r.Mode == driver.Shared && !q.caps.Shared {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if err := q.enter(ctx); err != nil {
		return driver.Grant{}, err
	}
	defer q.calls.Done()
	now := driver.HostClock.Now()
	a := &attempt{
		hold:    &hold{q: q, ballots: make([]ballot, len(q.nodes)), taken: now},
		request: r, vote: q.rules.Begin(r.TTL, now), errs: make([]error, len(q.nodes)), decided: make(chan struct{}),
	}
	a.request.Tokens = 1
	q.mu.Lock()
	a.earlier = slices.Clone(q.leaving[r.Name])
	q.mu.Unlock()
	patience := q.patience(r.TTL)
	q.each(q.rules.All(), patience, a.first)
	select {
	case <-a.decided:
	case <-ctx.Done():
	case <-time.After(2 * patience): // for the votes, and for the token: a driver may be late
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := driver.Grant{Request: r, Handle: a.hold}
	switch a.vote.Phase {
	case vote.Won:
		a.until = a.vote.Until()
		g.Token, g.Block, g.Since, g.Valid = a.vote.Token, 1, a.vote.Sent, vote.Valid(a.vote.TTL)
		return g, nil
	case vote.Over:
		return g, a.failure(driver.HostClock.Now())
	}
	a.do(a.vote.GiveUp())
	return g, driver.Uncertain(cmp.Or(ctx.Err(), fmt.Errorf("no majority of the %d nodes answers within %v", len(q.nodes), patience)))
}

// first asks one node for its vote, and takes in the answer. It waits until the node was told of this client's earlier
// withdrawals: because of them it would refuse its vote, and a free name would seem to be held.
func (a *attempt) first(ctx context.Context, n *node) {
	for _, h := range a.earlier {
		select {
		case <-h.ballots[n.index].told.Done():
		case <-ctx.Done():
		}
	}
	reply, err := a.ask(ctx, n, a.request)
	now := driver.HostClock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs[n.index] = err
	a.do(a.vote.Answer(n.index, reply, now))
}

// write has one node record the token.
func (a *attempt) write(ctx context.Context, n *node) {
	err := n.renew(ctx, []driver.Grant{a.renewed(n, driver.Grant{Request: a.request})})[0].Err
	now := driver.HostClock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.errs[n.index] = fmt.Errorf("token: %w", err)
	}
	a.do(a.vote.Wrote(n.index, err == nil, now))
}

// do does what the vote says.
func (a *attempt) do(step vote.Step) {
	a.token = a.vote.Token
	a.q.each(step.Nodes, a.q.patience(a.request.TTL), a.write)
	if step.Now == vote.Over {
		undone := driver.Grant{Request: a.request}
		undone.MinHold = 0
		a.withdraw(undone)
	}
	if step.Now != vote.Asking {
		close(a.decided)
	}
}

// failure returns why there is no majority. One node's ErrHeld, ErrMismatch or ErrNotHeld is not the quorum's.
func (a *attempt) failure(now driver.Instant) error {
	held := &driver.HeldError{Name: a.request.Name, Poll: a.poll(now.Sub(a.vote.Sent))}
	holds, mismatches, failures, spare := 0, 0, 0, len(a.errs)-a.q.rules.Majority()
	opens := make([]time.Duration, len(a.errs)) // after which time each node grants
	for i, err := range a.errs {
		switch one, _ := errors.AsType[*driver.HeldError](err); {
		case err == nil:
		case one != nil:
			holds, held.Note, opens[i] = holds+1, cmp.Or(held.Note, one.Note), one.Forgotten
		case errors.Is(err, driver.ErrHeld):
			holds++
		case errors.Is(err, driver.ErrMismatch):
			mismatches++
		default:
			failures, opens[i] = failures+1, math.MaxInt64
		}
	}
	err := fmt.Errorf("no majority of the %d nodes: %v", len(a.errs), errors.Join(a.errs...))
	switch enough := failures <= spare; { // without the others there would be a majority
	case mismatches > spare:
		return driver.ErrMismatch
	case holds+mismatches > 0 && enough:
		slices.Sort(opens)
		if held.Forgotten = opens[a.q.rules.Majority()-1]; held.Forgotten > 0 {
			held.Poll, held.ExpiresIn = 0, held.Forgotten // to ask every few milliseconds would be in vain
		}
		return held
	case failures == 0:
		return driver.Uncertain(fmt.Errorf("a majority of the %d nodes was not quick enough for a TTL of %v", len(a.errs), a.request.TTL))
	case a.vote.Refused.Len() <= spare:
		return driver.Uncertain(err)
	}
	return err
}

// poll returns after which pause a waiter asks again: some attempts' time. Nobody tells a waiter that the name is
// free. Waiters that ask at once split the votes, and nobody gets the name: then the pause is longer.
func (a *attempt) poll(took time.Duration) time.Duration {
	attempts := time.Duration(8)
	if n := a.vote.Given.Len(); n > 0 && n < a.q.rules.Majority() && a.vote.Refused != 0 {
		attempts = 32
	}
	return min(max(attempts*took, 2*time.Millisecond), a.q.caps.Poll)
}
