package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// node is one store of a quorum.
type node struct {
	q     *quorum
	index int
	name  string
	tried chan struct{} // closed when the first attempt to open the node has ended

	mu     sync.Mutex
	driver driver.Driver // nil: not open
	lives  lives         // the driver, or faithful
	failed error         // why it is not open
	memory vote.Memory
	owed   int // votes that are being withdrawn
}

// lives is what tells a node's memory: see driver.Voter.
type lives interface {
	Vote(context.Context, driver.Request, driver.Life) (driver.Grant, bool, error)
	Life(context.Context, time.Duration) (driver.Life, bool, time.Duration, error)
	Admit(context.Context, driver.Life) error
}

// faithful is a node that forgets nothing: its only life counts.
type faithful struct{ driver.Driver }

func (f faithful) Vote(ctx context.Context, r driver.Request, _ driver.Life) (driver.Grant, bool, error) {
	g, err := f.Try(ctx, r)
	return g, true, err
}

func (faithful) Life(context.Context, time.Duration) (driver.Life, bool, time.Duration, error) {
	return 1, true, 0, nil
}

func (faithful) Admit(context.Context, driver.Life) error { return nil }

// openWithin bounds an attempt to open a node.
const openWithin = 5 * time.Second

// keepOpening opens the node, and repeats that until it succeeds or the driver is closed. First gets the outcome
// of the first attempt.
func (n *node) keepOpening(open func(context.Context) (driver.Driver, error), first chan<- error) {
	var pause backoff
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(n.q.closing, openWithin)
		d, err := open(ctx)
		if err == nil {
			if err = n.accept(ctx, d); err != nil {
				d.Close()
			}
		}
		cancel()
		if err != nil {
			n.mu.Lock()
			n.failed = fmt.Errorf("node %s: %w", n.name, err)
			n.mu.Unlock()
		}
		if try == 1 {
			close(n.tried)
			first <- err
		}
		if err == nil || !pause.rest(n.q) {
			return
		}
	}
}

// accept admits a driver that has just been opened, and uses it.
func (n *node) accept(ctx context.Context, d driver.Driver) error {
	if err := n.q.admit(ctx, n.name, d); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.driver, n.failed = d, nil
	if v, ok := driver.As[driver.Voter](d, driver.OpVote); ok && n.q.rules.MaxTTL != 0 {
		n.lives = v
		return nil
	}
	n.lives, n.memory = faithful{d}, vote.Memory{Life: 1, Admitted: true}
	return nil
}

// opened returns the node's driver, or why it is not open.
func (n *node) opened() (driver.Driver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.driver, n.failed
}

// get is opened after the first attempt to open the node.
func (n *node) get(ctx context.Context) (driver.Driver, error) {
	select {
	case <-n.tried:
		return n.opened()
	case <-ctx.Done():
		return nil, fmt.Errorf("node %s: %w", n.name, ctx.Err())
	}
}

// known returns what the client knows of the node's memory.
func (n *node) known() vote.Memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.memory
	m.Longest = time.Duration(n.q.longest.Load())
	return m
}

// learn asks the node for its life, and admits it when it is time. If the node does not say, nothing is
// known. P1: learn tells the node this client's longest TTL before the node's vote counts for this client, so
// that clients with a shorter one hear of it.
func (n *node) learn(ctx context.Context) (vote.Memory, error) {
	if _, err := n.get(ctx); err != nil {
		return vote.Memory{}, err
	}
	life, admitted, longest, err := n.lives.Life(ctx, n.q.rules.MaxTTL)
	if err != nil {
		return vote.Memory{}, err
	}
	now := n.q.clock.Now()
	for was := n.q.longest.Load(); int64(longest) > was && !n.q.longest.CompareAndSwap(was, int64(longest)); {
		was = n.q.longest.Load()
	}
	n.mu.Lock()
	n.memory = n.memory.Learn(life, admitted, now)
	n.mu.Unlock()
	m := n.known()
	if n.q.rules.Admit(m, now) {
		n.lives.Admit(ctx, life) // if that fails, the next request does it
	}
	return m, nil
}

// Errors of nodes that have no tokens, where holds have some.
var (
	errNoTokens = errors.New("it has no fencing tokens that can be raised, as the nodes had that were opened first")
	errBadToken = errors.New("its token is out of range")
)

// maxToken is the highest token: those after it must be possible, too.
const maxToken = 1<<53 - 1

// hasTokens reports whether a node can vote for holds with tokens.
func hasTokens(c driver.Caps) bool { return c.Fencing && c.Ops.Has(driver.OpRaise) }

// vote asks the node for its vote. It returns the answer as package vote knows it, and what is known of the
// node's memory: nothing, if the vote was given in another life.
func (n *node) vote(ctx context.Context, r driver.Request) (driver.Grant, vote.Answer, vote.Memory, error) {
	refused := func(err error) (driver.Grant, vote.Answer, vote.Memory, error) {
		return driver.Grant{}, vote.Refused, vote.Memory{}, err // nothing was sent
	}
	d, err := n.get(ctx)
	if err != nil {
		return refused(err)
	}
	if n.q.rules.Tokens && !hasTokens(d.Caps()) {
		return refused(fmt.Errorf("node %s: %w", n.name, errNoTokens))
	}
	m := n.known()
	if !m.Admitted { // another client may have admitted it meanwhile
		if m, err = n.learn(ctx); err != nil {
			return refused(fmt.Errorf("node %s: %w", n.name, err))
		}
	}
	g, same, err := n.lives.Vote(ctx, r, m.Life)
	if err == nil && !same {
		n.learn(ctx) // for the next request
		m = vote.Memory{}
	}
	if err == nil && n.q.rules.Tokens && (g.Token <= 0 || g.Token >= maxToken) {
		err = driver.Uncertain(errBadToken) // so that it is withdrawn
	}
	switch {
	case err == nil:
		return g, vote.Given, m, nil
	case errors.Is(err, driver.ErrUncertain):
		return g, vote.Lost, m, fmt.Errorf("node %s: %w", n.name, err)
	}
	return g, vote.Refused, m, fmt.Errorf("node %s: %w", n.name, err)
}

// plain returns an error that says the same of one node, and says nothing of the hold to errors.Is.
func plain(err error) error {
	if driver.Gone(err) || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrMismatch) {
		return errors.New(err.Error())
	}
	return err
}

// backoff is the pause before the next attempt at something that a node has not done.
type backoff time.Duration

// rest waits for twice as long as the last time, from 10 ms to a second. It returns false if the driver is
// closed.
func (b *backoff) rest(q *quorum) bool {
	*b = min(max(2**b, backoff(10*time.Millisecond)), backoff(time.Second))
	select {
	case <-time.After(time.Duration(*b)):
		return true
	case <-q.closing.Done():
		return false
	}
}
