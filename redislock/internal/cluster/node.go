package cluster

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// openWithin is how long the first contact may take.
const openWithin = 5 * time.Second

// node is a server of the cluster.
type node struct {
	server   *wire.Server
	reserved func(context.Context, []wire.Command) []wire.Reply // nil: not asked for

	owed  atomic.Int64 // requests under way
	heard atomic.Int64 // when the last reply came, or the first request went; since began, in nanoseconds
}

// node returns the server at an address, to which it begins to connect if it has not.
func (c *Conn) node(address string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive.Err() != nil {
		return nil, net.ErrClosed
	}
	if n := c.nodes[address]; n != nil {
		return n, nil
	}
	n := &node{server: wire.Open(c.o.Server(address))}
	if c.reserves {
		n.reserved = n.server.Reserve()
	}
	c.nodes[address] = n
	return n, nil
}

// began is what instants count from.
var began = time.Now()

// do sends commands, and takes note of silence.
func (n *node) do(ctx context.Context, commands []wire.Command, reserved bool) []wire.Reply {
	send := n.server.Do
	if reserved {
		send = n.reserved
	}
	if n.owed.Add(1) == 1 {
		n.heard.Store(int64(time.Since(began)))
	}
	replies := send(ctx, commands)
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

// watch asks for the table, again and again, while a server is silent, until the Conn is closed.
func (c *Conn) watch() {
	for pause.Sleep(c.alive, silentFor/2) {
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

// prune closes the connections to servers that have no slots any more. They have a moment for replies to what is
// under way: a server that has handed its slots over redirects it.
func (c *Conn) prune() {
	owners := c.table.Load().owners
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, n := range c.nodes {
		if !slices.Contains(owners, address) && c.alive.Err() == nil {
			delete(c.nodes, address)
			c.work.Go(func() {
				pause.Sleep(c.alive, silentFor)
				n.server.Close()
			})
		}
	}
}
