package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// node is one store of a quorum. The quorum's mutex guards what changes after the node was opened.
type node struct {
	q      *quorum
	index  int
	name   string
	tried  chan struct{} // closed when the first attempt to open the node has ended
	failed error         // why it is not open

	driver driver.Driver
	raiser vote.Raiser // the driver, if it has tokens that can be raised; else nil

	owed atomic.Int32 // votes that are being withdrawn
}

// says returns an error, or nil, that names the node.
func (n *node) says(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("node %s: %w", n.name, err)
}

// keepOpening opens the node, and repeats that until it succeeds or the driver is closed. First gets the outcome
// of the first attempt.
func (n *node) keepOpening(open func(context.Context) (driver.Driver, error), first chan<- error) {
	backoff := pause.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(n.q.closing, 5*time.Second)
		d, err := open(ctx)
		if err == nil {
			if err = n.accept(ctx, d); err != nil {
				d.Close()
			}
		}
		cancel()
		n.q.mu.Lock()
		n.failed = err
		n.q.mu.Unlock()
		if try == 1 {
			close(n.tried)
			first <- err
		}
		if err == nil || !pause.Sleep(n.q.closing, backoff.Next()) {
			return
		}
	}
}

// refusal is why a node must not vote.
type refusal string

func (r refusal) Error() string { return string(r) }

// accept checks a driver that has just been opened, and uses it. It refuses a node that would let two clients have
// a majority each (P1): one that may come back without votes and gives them again before they have ended; one that is
// said to be durable and is not; and one that is another node, too.
func (n *node) accept(ctx context.Context, d driver.Driver) error {
	caps, durable := d.Caps(), n.q.durable
	keeper, tells := driver.As[vote.Keeper](d)
	switch {
	case durable && tells:
		if yes, err := keeper.Durable(ctx); err != nil {
			return err
		} else if !yes {
			return refusal("it is said to be durable (Options.Durable, hf.durable), and is not: a Redis server needs appendonly yes and appendfsync always")
		}
	case !durable && caps.Guarantees.Faults[driver.StoreRestart].Exclusion == driver.Breaks:
		return refusal("it may forget its votes when it restarts, and give them again at once (Redis does with hf.forget=go and with hf.layout=redisson): say that all nodes are durable (hf.durable), if they are")
	}
	var raiser vote.Raiser
	if caps.Fencing {
		raiser, _ = driver.As[vote.Raiser](d)
	}
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	if n.q.rules.Tokens && raiser == nil {
		return refusal("it has no fencing tokens that can be raised, as the nodes had that were opened first")
	}
	if other := cmp.Or(n.q.stores[caps.Store], n); other != n {
		return refusal(fmt.Sprintf("it is the same store as node %s, %s, or has a copy of its data: each node must be a store of its own", other.name, caps.Store))
	}
	n.q.stores[caps.Store] = n
	n.driver, n.raiser, n.failed = d, raiser, nil
	return nil
}

// get returns the node's driver, or why it is not open, after the first attempt to open it.
func (n *node) get(ctx context.Context) (driver.Driver, error) {
	select {
	case <-n.tried:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	return n.driver, n.failed
}

// vote asks the node for its vote.
func (n *node) vote(ctx context.Context, r driver.Request) (g driver.Grant, reply vote.Reply, err error) {
	defer func() { err = n.says(err) }()
	reply.Answer = vote.Refused // until something is sent
	d, err := n.get(ctx)
	if err == nil {
		g, err = d.Try(ctx, r)
	}
	if err == nil && n.q.rules.Tokens && (g.Token <= 0 || g.Token >= 1<<53-1) { // a higher one must be possible
		err = driver.Uncertain(errors.New("its token is out of range")) // so that it is withdrawn
	}
	switch {
	case err == nil:
		reply = vote.Reply{Answer: vote.Given, Token: g.Token, Valid: g.Valid}
	case errors.Is(err, driver.ErrUncertain):
		reply.Answer = vote.Lost
	}
	return g, reply, err
}

// renew has the node renew holds, and record their tokens, if they have some.
func (n *node) renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	d, err := n.get(ctx)
	switch {
	case err != nil:
	case n.q.rules.Tokens:
		renewals = n.raiser.Raise(ctx, grants)
	default:
		renewals = d.Renew(ctx, grants)
	}
	for i := range renewals {
		renewals[i].Err = n.says(cmp.Or(err, renewals[i].Err))
	}
	return renewals
}
