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
	open  func(context.Context) (driver.Driver, error)

	mu      sync.Mutex
	driver  driver.Driver // nil: not open yet
	opening chan struct{} // closed when the attempt under way has ended; nil: none is
	failed  error         // the last attempt's
	again   driver.Instant
	memory  vote.Memory
	owed    []owed // what is still to be withdrawn
}

// reopen is how long after a failure a node is opened again, at the earliest.
const reopen = 200 * time.Millisecond

// openWithin bounds an attempt to open a node.
const openWithin = 5 * time.Second

// opened returns the node's driver, if it is open.
func (n *node) opened() (driver.Driver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.driver != nil {
		return n.driver, nil
	}
	if n.failed != nil {
		return nil, n.failed
	}
	return nil, fmt.Errorf("node %s: not open yet", n.name)
}

// get returns the node's driver. If the node is not open it tries that, once for all who ask.
func (n *node) get(ctx context.Context) (driver.Driver, error) {
	n.mu.Lock()
	d := n.driver
	n.mu.Unlock()
	if d != nil {
		return d, nil
	}
	if err := n.reach(ctx); err != nil {
		return nil, err
	}
	return n.opened()
}

// reach opens the node, or waits until another has.
func (n *node) reach(ctx context.Context) error {
	n.mu.Lock()
	if n.driver != nil {
		n.mu.Unlock()
		return nil
	}
	if n.opening == nil {
		if n.failed != nil && n.q.clock.Now() < n.again {
			defer n.mu.Unlock()
			return n.failed
		}
		n.opening = make(chan struct{})
		if !n.q.spawn(n.tryOpen) {
			close(n.opening)
			n.opening = nil
			n.mu.Unlock()
			return driver.ErrClosed
		}
	}
	opening := n.opening
	n.mu.Unlock()
	select {
	case <-opening:
		_, err := n.opened()
		return err
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", n.name, ctx.Err())
	}
}

// tryOpen opens the node, once.
func (n *node) tryOpen() {
	ctx, cancel := n.q.within(openWithin)
	defer cancel()
	d, err := n.open(ctx)
	if err == nil {
		if err = n.q.admit(ctx, n.name, d); err != nil {
			d.Close()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed, n.again = fmt.Errorf("node %s: %w", n.name, err), n.q.clock.Now().Add(reopen)
	} else {
		n.driver, n.failed = d, nil
	}
	close(n.opening)
	n.opening = nil
}

// known returns what the client knows of the node's memory. A store that is no vote.Voter forgets nothing.
func (n *node) known() vote.Memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.driver != nil {
		if _, ok := vote.VoterOf(n.driver); ok {
			return n.remembered()
		}
	}
	return vote.Memory{Life: 1, Admitted: true}
}

// remembered is what the client knows of the node's memory, if the node is a vote.Voter.
func (n *node) remembered() vote.Memory {
	m := n.memory
	m.Longest = time.Duration(n.q.longest.Load())
	return m
}

// learn asks the node for its life, and admits it when it is time. P1: it tells the node this client's longest TTL
// before the node's vote counts for this client, so that clients with a shorter one hear of it.
func (n *node) learn(ctx context.Context, v vote.Voter) (vote.Memory, error) {
	life, admitted, longest, err := v.Life(ctx, n.q.rules.MaxTTL)
	now := n.q.clock.Now()
	n.mu.Lock()
	if err == nil {
		n.q.raise(longest)
		n.memory = n.memory.Learn(life, admitted, now)
	}
	m := n.remembered()
	n.mu.Unlock()
	if err == nil && n.q.rules.Admit(m, now) {
		v.Admit(ctx, life) // if that fails, the next request does it
	}
	return m, err
}

// raise takes in the longest TTL that a node knows of.
func (q *quorum) raise(longest time.Duration) {
	for was := q.longest.Load(); int64(longest) > was && !q.longest.CompareAndSwap(was, int64(longest)); {
		was = q.longest.Load()
	}
}

// lived returns what is known of the node's memory, up to answers that have just come: nothing, if the node
// does not say in which life it is. It is asked after the answers, because the same life now is the same
// life then. Suppose the node restarted without memory, and a request of this client's that was under way
// for long has taken the vote again in the new life. Then the node renews it, and it must not count.
func (n *node) lived(ctx context.Context) vote.Memory {
	d, err := n.opened()
	if err != nil {
		return vote.Memory{}
	}
	v, ok := vote.VoterOf(d)
	if !ok || n.q.rules.MaxTTL == 0 {
		return n.known()
	}
	m, err := n.learn(ctx, v)
	if err != nil {
		return vote.Memory{}
	}
	return m
}

// try asks the node for its vote. It returns the answer as package vote knows it, and what is known of the
// node's memory: nothing, if the vote was given in another life.
func (n *node) try(ctx context.Context, r driver.Request) (driver.Grant, vote.Answer, vote.Memory, error) {
	d, err := n.get(ctx)
	if err != nil {
		return driver.Grant{}, vote.Refused, vote.Memory{}, err // nothing was sent
	}
	g, m, err := n.ask(ctx, d, r)
	switch {
	case err == nil:
		return g, vote.Given, m, nil
	case errors.Is(err, driver.ErrUncertain):
		return g, vote.Lost, m, fmt.Errorf("node %s: %w", n.name, err)
	}
	return g, vote.Refused, m, fmt.Errorf("node %s: %w", n.name, err)
}

// Errors of nodes that have no tokens, where holds have some.
var (
	errNoTokens = errors.New("it has no fencing tokens that can be raised, as the nodes had that were opened first")
	errBadToken = errors.New("its token is out of range")
)

// ask asks the node's driver for a hold.
func (n *node) ask(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, vote.Memory, error) {
	if n.q.rules.Tokens && !hasTokens(d) {
		return driver.Grant{}, vote.Memory{}, errNoTokens // nothing was asked for
	}
	g, m, err := n.askVote(ctx, d, r)
	if err == nil && n.q.rules.Tokens && (g.Token <= 0 || g.Token >= maxToken) {
		err = driver.Uncertain(errBadToken) // so that it is withdrawn
	}
	return g, m, err
}

// maxToken is the highest token: those after it must be possible, too.
const maxToken = 1<<53 - 1

// hasTokens reports whether a node can vote for holds with tokens.
func hasTokens(d driver.Driver) bool {
	_, raises := driver.As[vote.Raiser](d)
	return raises && d.Caps().Fencing
}

// askVote asks for a hold, and in which life it was given.
func (n *node) askVote(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, vote.Memory, error) {
	v, ok := vote.VoterOf(d)
	if !ok || n.q.rules.MaxTTL == 0 {
		g, err := d.Try(ctx, r)
		return g, n.known(), err
	}
	m := n.known()
	if !m.Admitted { // another client may have admitted it meanwhile
		var err error
		if m, err = n.learn(ctx, v); err != nil {
			return driver.Grant{}, vote.Memory{}, err // nothing was asked for
		}
	}
	g, same, err := v.Vote(ctx, r, m.Life)
	if err == nil && !same {
		n.learn(ctx, v) // for the next request
		m = vote.Memory{}
	}
	return g, m, err
}
