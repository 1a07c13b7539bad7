package cluster

import (
	"context"
	"net"
	"slices"
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

// silentFor is how long a server may owe replies before the others are asked whether another has its slots.
const silentFor = time.Second

// request sends commands to a server, and counts those that are late.
func (c *Conn) request(ctx context.Context, n *node, commands []wire.Command, reserved bool) []wire.Reply {
	send := n.server.Do
	if reserved {
		send = n.reserved
	}
	late := time.AfterFunc(silentFor, func() { c.late.Add(1) })
	replies := send(ctx, commands)
	if !late.Stop() {
		c.late.Add(-1)
	}
	return replies
}

// watch asks for the table, again and again, while requests are late, until the Conn is closed.
func (c *Conn) watch() {
	for pause.Sleep(c.alive, silentFor/2) {
		if c.late.Load() > 0 {
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
