package cluster

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// openWithin is how long the first contact may take.
const openWithin = 5 * time.Second

// node is a server of the cluster.
type node struct {
	address string
	opened  chan struct{} // closed when there is a server, or an error
	dialed  Dialed
	server  Server
	err     error

	owed  atomic.Int64 // requests under way
	heard atomic.Int64 // when the last reply came, or the first request went; since began, in nanoseconds

	mu     sync.Mutex
	keep   func(context.Context, []redislock.Command) []redislock.Reply // nil: not asked for yet
	closed bool
}

// node returns the server at an address, to which it begins to connect if it has not.
func (c *Conn) node(address string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if n := c.nodes[address]; n != nil {
		return n, nil
	}
	n := &node{address: address, opened: make(chan struct{})}
	c.nodes[address] = n
	c.work.Go(func() {
		n.server, n.err = c.o.Open(address, &n.dialed)
		if n.err != nil { // the next request tries again
			c.mu.Lock()
			if c.nodes[address] == n {
				delete(c.nodes, address)
			}
			c.mu.Unlock()
		} else if c.reserves.Load() {
			n.reserve()
		}
		close(n.opened)
	})
	return n, nil
}

// await waits until there is a connection.
func (n *node) await(ctx context.Context) error {
	select {
	case <-n.opened:
		return n.err
	default:
	}
	select {
	case <-n.opened:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// began is what instants count from.
var began = time.Now()

// do sends commands by a way, and takes note of silence.
func (n *node) do(ctx context.Context, commands []redislock.Command, by way) []redislock.Reply {
	if n.owed.Add(1) == 1 {
		n.heard.Store(int64(time.Since(began)))
	}
	replies := by(n, ctx, commands)
	if ctx.Err() == nil {
		n.heard.Store(int64(time.Since(began)))
	}
	n.owed.Add(-1)
	return replies
}

// silentFor is how long a server may owe replies and send none, before the others are asked whether
// another has its slots.
const silentFor = time.Second

func (n *node) silent() bool {
	return n.owed.Load() > 0 && time.Since(began)-time.Duration(n.heard.Load()) >= silentFor
}

// watch asks for the table, again and again, while a server is silent, until the Conn is closed. Of the
// server at which the Conn is subscribed nobody may want anything else, so watch asks it for a sign of
// life.
func (c *Conn) watch() {
	tick := time.NewTicker(silentFor / 2)
	defer tick.Stop()
	for ticks := 0; ; ticks++ {
		select {
		case <-tick.C:
		case <-c.alive.Done():
			return
		}
		if n := c.listens.Load(); n != nil && n.owed.Load() == 0 && ticks%2 == 0 {
			c.work.Go(func() {
				ctx, cancel := context.WithTimeout(c.alive, 2*silentFor)
				defer cancel()
				n.do(ctx, []redislock.Command{{Args: []string{"PING"}}}, (*node).shared)
			})
		}
		c.mu.Lock()
		silent := false
		for _, n := range c.nodes {
			silent = silent || n.silent()
		}
		c.mu.Unlock()
		if silent {
			c.refresh()
		}
	}
}

// silence returns whether a server is known to be silent.
func (c *Conn) silence(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[address]
	return n != nil && n.silent()
}

func (n *node) shared(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	return n.server.Do(ctx, commands)
}

func (n *node) reserved(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	if keep := n.reserve(); keep != nil {
		return keep(ctx, commands)
	}
	return n.shared(ctx, commands)
}

// reserve lets the server reserve connections for renewals and releases, and returns the way by them,
// or nil if the node is closed.
func (n *node) reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keep == nil && !n.closed {
		n.keep = n.server.Reserve()
	}
	return n.keep
}

// close closes the connections, when they have been made.
func (n *node) close() {
	<-n.opened
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.dialed.Close()
	if n.err == nil {
		n.server.Close()
	}
}

// prune closes the connections to servers that have no slots any more, once they have replied to what is
// under way: a server that has handed its slots over redirects it.
func (c *Conn) prune() {
	owners := c.table.Load().owners
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, n := range c.nodes {
		if !slices.Contains(owners, address) && !c.closed {
			delete(c.nodes, address)
			c.work.Go(func() {
				n.drain(c.alive)
				n.close()
			})
		}
	}
}

// drainEvery is how often drain looks.
const drainEvery = 10 * time.Millisecond

// drain waits until a server owes no replies, or is known to be silent, or ctx ends, and at most silentFor.
// It looks at first after a moment: a request may have the node, and not be under way yet.
func (n *node) drain(ctx context.Context) {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for end := time.Now().Add(silentFor); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if n.owed.Load() == 0 || n.silent() {
			return
		}
	}
}
