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

// attempt is one Try. The hold's mutex guards it.
type attempt struct {
	q       *quorum
	request driver.Request
	hold    *hold
	decided chan struct{} // closed when the vote is won or over
	vote    vote.Attempt
	errs    []error // by node
}

// Try implements driver.Driver. It returns as soon as a majority has given or refused its votes; what is
// still under way then goes on in the background.
func (q *quorum) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Mode == driver.Slot || r.Mode == driver.Shared && !q.caps.Shared {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if err := q.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	a := &attempt{
		q: q, request: r, decided: make(chan struct{}), errs: make([]error, len(q.nodes)),
		hold: &hold{ballots: make([]ballot, len(q.nodes))},
	}
	for i := range q.nodes {
		a.hold.begin(i)
	}
	a.request.Tokens = 1
	a.vote = q.rules.Begin(r.TTL, q.clock.Now())
	a.hold.taken = a.vote.Sent
	q.all(q.patience(r.TTL), a.ask)
	a.wait(ctx)
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	q.pace.note(q.clock.Now().Sub(a.vote.Sent), a.split())
	undecided := a.vote.Phase != vote.Won && a.vote.Phase != vote.Over
	if undecided {
		for i, n := range q.nodes {
			if a.hold.ballots[i].state == asked {
				a.errs[i] = driver.Uncertain(fmt.Errorf("node %s: no answer within %v", n.name, q.patience(r.TTL)))
			}
		}
		a.do(a.vote.GiveUp())
	}
	switch {
	case a.vote.Phase == vote.Won:
		a.hold.until = a.vote.Until()
		return driver.Grant{
			Request: r, Token: a.vote.Token, Block: 1, Since: a.vote.Sent, Valid: vote.Valid(a.vote.TTL), Handle: a.hold,
		}, nil
	case undecided && ctx.Err() != nil:
		return driver.Grant{Request: r, Handle: a.hold}, driver.Uncertain(ctx.Err())
	}
	return driver.Grant{Request: r, Handle: a.hold}, a.failure()
}

// wait waits until the attempt is decided, or the nodes have had time to answer, and then to record the token.
// Their requests end by then, but a driver may be late, for example because it is connecting for others too.
func (a *attempt) wait(ctx context.Context) {
	for range 2 {
		select {
		case <-a.decided:
			return
		case <-ctx.Done():
			return
		case <-time.After(a.q.patience(a.request.TTL)):
		}
		a.hold.mu.Lock()
		writing := a.vote.Phase == vote.Writing
		a.hold.mu.Unlock()
		if !writing {
			return
		}
	}
}

// ask asks one node for its vote, and takes in the answer.
func (a *attempt) ask(ctx context.Context, n *node) {
	g, answer, memory, err := n.vote(ctx, a.request)
	now := a.q.clock.Now()
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	a.hold.answered(n, a.request, g, answer)
	a.errs[n.index] = err
	if answer == vote.Given {
		a.vote.Trust(g.Valid)
	}
	a.do(a.vote.Answer(n.index, answer, memory, g.Token, now))
}

// do does what the vote says.
func (a *attempt) do(step vote.Step) {
	switch step.Do {
	case vote.Write:
		a.hold.token = a.vote.Token
		for _, n := range a.q.nodes {
			if step.Nodes.Has(n.index) {
				a.hold.record(n, driver.Grant{Request: a.request}, func(err error) {
					if err != nil {
						a.errs[n.index] = fmt.Errorf("token: %w", err)
					}
					a.do(a.vote.Wrote(n.index, err == nil, a.q.clock.Now()))
				})
			}
		}
	case vote.Grant:
		a.hold.token = a.vote.Token
		close(a.decided)
	case vote.Undo: // the votes of nodes that answer later are withdrawn when they do: see hold.answered
		if !a.hold.over {
			a.hold.withdraw(a.q, step.Nodes, a.request)
			close(a.decided)
		}
	}
}

// failure returns why there is no majority.
func (a *attempt) failure() error {
	needed, now := a.q.rules.Majority(), a.q.clock.Now()
	rules := a.q.rules
	rules.MaxTTL = max(rules.MaxTTL, time.Duration(a.q.longest.Load()))
	held := &driver.HeldError{Name: a.request.Name, Poll: a.q.pace.poll(a.q.caps.Poll)}
	var opens []time.Duration // in how long nodes give votes that count, as far as it is known
	holds, delayed, mismatches, failures := 0, 0, 0, 0
	for i, err := range a.errs {
		var one *driver.HeldError
		switch {
		case err == nil && (a.vote.Given &^ a.vote.Counted).Has(i):
			delayed++
			opens = append(opens, max(rules.Delay()-now.Sub(a.q.nodes[i].known().Since), time.Millisecond))
		case errors.Is(err, driver.ErrHeld):
			if holds++; errors.As(err, &one) && one.ExpiresIn > 0 {
				opens = append(opens, one.ExpiresIn)
			}
			if one != nil && held.Note == "" {
				held.Note = one.Note
			}
		case errors.Is(err, driver.ErrMismatch):
			mismatches++
		case err != nil:
			failures++
		}
	}
	slices.Sort(opens)
	if wanting := needed - a.vote.Counted.Len(); wanting > 0 && wanting <= len(opens) {
		held.ExpiresIn = opens[wanting-1]
	}
	switch {
	case mismatches > len(a.q.nodes)-needed:
		return driver.ErrMismatch
	case delayed > 0 && holds+mismatches == 0 && failures <= len(a.q.nodes)-needed:
		held.Note, held.Poll = fmt.Sprintf(
			"%d of %d nodes may have forgotten who holds it, and do not count until %v after their start (if they are new, holdfast redlock init says so)",
			delayed, len(a.q.nodes), rules.Delay().Round(time.Millisecond)), 0
		return held
	case holds+mismatches > 0 && failures <= len(a.q.nodes)-needed: // without others there would be a majority
		return held
	case failures == 0:
		return driver.Uncertain(fmt.Errorf("a majority of the %d nodes was not quick enough for a TTL of %v", len(a.q.nodes), a.request.TTL))
	}
	var errs []error
	for _, err := range a.errs {
		if err != nil {
			errs = append(errs, plain(err))
		}
	}
	err := fmt.Errorf("no majority of the %d nodes: %w", len(a.q.nodes), errors.Join(errs...))
	if (rules.All() &^ a.vote.Refused).Len() >= needed {
		return driver.Uncertain(err)
	}
	return err
}
