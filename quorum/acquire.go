package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// attempt is one Try.
type attempt struct {
	q       *quorum
	request driver.Request
	hold    *hold
	decided chan struct{} // closed when the vote is won or over

	// The hold's mutex guards these.
	vote   vote.Attempt
	errs   []error // by node
	undone bool
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
	a.request.Tokens = 1
	a.hold.begin(q.rules.All())
	a.vote = q.rules.Begin(r.TTL, q.clock.Now())
	a.hold.taken = a.vote.Sent
	q.all(q.patience(r.TTL), a.ask)
	late := time.NewTimer(q.patience(r.TTL))
	defer late.Stop()
	for _, giveUp := range []func(*node){a.giveUpVote, a.giveUpWrite} {
		select {
		case <-a.decided:
		case <-ctx.Done():
		case <-late.C:
			a.giveUp(giveUp)
			late.Reset(q.patience(r.TTL))
		}
	}
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	q.pace.note(q.clock.Now().Sub(a.vote.Sent), a.split())
	if a.vote.Phase != vote.Won && a.vote.Phase != vote.Over {
		a.do(a.vote.GiveUp())
		return driver.Grant{Request: r, Handle: a.hold}, driver.Uncertain(cmp.Or(ctx.Err(), errSlow))
	}
	if a.vote.Phase == vote.Won {
		a.hold.until = a.vote.Until()
		return driver.Grant{
			Request: r, Token: a.vote.Token, Block: 1, Since: a.vote.Sent, Valid: vote.Valid(a.vote.TTL), Handle: a.hold,
		}, nil
	}
	return driver.Grant{Request: r, Handle: a.hold}, a.failure()
}

// errSlow is the outcome of an attempt whose nodes went on answering too late.
var errSlow = errors.New("the nodes are too slow for the TTL")

// giveUp gives up nodes that have not answered in time. Their requests should have ended by then, but a
// driver may be late, for example because it is connecting for others too.
func (a *attempt) giveUp(node func(*node)) {
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	for _, n := range a.q.nodes {
		node(n)
	}
}

// giveUpVote counts a vote as lost.
func (a *attempt) giveUpVote(n *node) {
	if a.hold.ballots[n.index].state == asked {
		a.errs[n.index] = driver.Uncertain(fmt.Errorf("node %s: no answer within %v", n.name, a.q.patience(a.request.TTL)))
		a.do(a.vote.Answer(n.index, vote.Lost, vote.Memory{}, 0, a.q.clock.Now()))
	}
}

// giveUpWrite counts a token as not recorded.
func (a *attempt) giveUpWrite(n *node) { a.do(a.vote.Wrote(n.index, false, a.q.clock.Now())) }

// ask asks one node for its vote, and takes in the answer.
func (a *attempt) ask(ctx context.Context, n *node) {
	g, answer, memory, err := n.try(ctx, a.request)
	now := a.q.clock.Now()
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	a.hold.answered(n.index, g, answer)
	a.errs[n.index] = err
	if part, may := a.hold.grant(n.index, driver.Grant{Request: a.request}); may && a.hold.over && a.vote.Phase == vote.Won {
		n.owe(a.hold, part) // released meanwhile
	}
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
				a.write(n, a.hold.raise(n.index, driver.Grant{Request: a.request}))
			}
		}
	case vote.Grant:
		a.hold.token = a.vote.Token
		close(a.decided)
	case vote.Undo:
		if a.hold.over = true; !a.undone {
			a.undone = true
			close(a.decided)
		}
		a.undo(step.Nodes)
	}
}

// write has a node record the token, in the background.
func (a *attempt) write(n *node, part driver.Grant) {
	wrote := func(err error) {
		if err != nil {
			a.errs[n.index] = fmt.Errorf("token: %w", err)
		}
		a.do(a.vote.Wrote(n.index, err == nil, a.q.clock.Now()))
	}
	ok := a.q.spawn(func() {
		ctx, cancel := a.q.within(a.q.patience(a.request.TTL))
		defer cancel()
		err := n.renew(ctx, []driver.Grant{part})[0].Err
		a.hold.mu.Lock()
		defer a.hold.mu.Unlock()
		wrote(err)
	})
	if !ok {
		wrote(driver.ErrClosed)
	}
}

// undo withdraws the votes of nodes that have answered. The others are withdrawn when they do: else the
// withdrawal might come before the request, which costs a tombstone.
func (a *attempt) undo(nodes vote.Set) {
	request := a.request
	request.MinHold = 0
	for i, n := range a.q.nodes {
		if !nodes.Has(i) || a.hold.ballots[i].state == asked {
			continue
		}
		if g, ok := a.hold.grant(i, driver.Grant{Request: request}); ok {
			n.owe(a.hold, g)
		}
	}
}

// failure returns why there is no majority.
func (a *attempt) failure() error {
	var held []error
	mismatches, failures := 0, 0
	for i, err := range a.errs {
		switch {
		case errors.Is(err, driver.ErrHeld):
			held = append(held, err)
			a.errs[i] = errors.New(err.Error()) // so that the error of all is not ErrHeld
		case errors.Is(err, driver.ErrMismatch):
			mismatches++
			a.errs[i] = errors.New(err.Error())
		case err != nil:
			failures++
			if driver.Gone(err) {
				a.errs[i] = errors.New(err.Error())
			}
		}
	}
	needed := a.q.rules.Majority()
	switch {
	case mismatches > len(a.q.nodes)-needed:
		return driver.ErrMismatch
	case a.vote.Given != a.vote.Counted && len(held) == 0 && failures+mismatches <= len(a.q.nodes)-needed:
		return a.delayed()
	case len(held)+mismatches > 0 && failures <= len(a.q.nodes)-needed: // without others there would be a majority
		return a.held(held)
	case failures == 0:
		return driver.Uncertain(fmt.Errorf("a majority of the %d nodes was not quick enough for a TTL of %v", len(a.q.nodes), a.request.TTL))
	}
	err := fmt.Errorf("no majority of the %d nodes: %w", len(a.q.nodes), errors.Join(a.errs...))
	if (a.q.rules.All() &^ a.vote.Refused).Len() >= needed {
		return driver.Uncertain(err)
	}
	return err
}

// delayed returns the error if nodes gave their votes that do not count yet.
func (a *attempt) delayed() error {
	now := a.q.clock.Now()
	rules := a.q.rules
	rules.MaxTTL = max(rules.MaxTTL, time.Duration(a.q.longest.Load()))
	var rest []time.Duration // of the delays
	for i, n := range a.q.nodes {
		if (a.vote.Given &^ a.vote.Counted).Has(i) {
			m := n.known()
			rest = append(rest, max(rules.Delay()-now.Sub(m.Since), time.Millisecond))
		}
	}
	slices.Sort(rest)
	held := &driver.HeldError{Name: a.request.Name, Note: fmt.Sprintf(
		"%d of %d nodes may have forgotten who holds it, and do not count until %v after their start (if they are new, holdfast redlock init says so)",
		len(rest), len(a.q.nodes), rules.Delay().Round(time.Millisecond))}
	if wanting := a.q.rules.Majority() - a.vote.Counted.Len(); wanting > 0 && wanting <= len(rest) {
		held.ExpiresIn = rest[wanting-1]
	}
	return held
}

// held returns the error of a name that others hold at nodes which answered.
func (a *attempt) held(errs []error) error {
	held := &driver.HeldError{Name: a.request.Name, Poll: a.q.pace.poll(a.q.caps.Poll)}
	var opens []time.Duration // when each node gives its vote, as far as it is known
	for _, err := range errs {
		var one *driver.HeldError
		if !errors.As(err, &one) {
			continue
		}
		if held.Note == "" {
			held.Note = one.Note
		}
		if one.ExpiresIn > 0 {
			opens = append(opens, one.ExpiresIn)
		}
	}
	slices.Sort(opens)
	if wanting := a.q.rules.Majority() - a.vote.Counted.Len(); wanting > 0 && wanting <= len(opens) {
		held.ExpiresIn = opens[wanting-1]
	}
	return held
}
