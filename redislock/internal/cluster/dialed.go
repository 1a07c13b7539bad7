package cluster

import (
	"context"
	"net"
	"sync"
)

// Dialed is the connections to one server. A client library that is closed may wait for a server that
// stands still, and may leave connections open on which it has subscribed. The zero value is ready, and
// safe for concurrent use.
type Dialed struct {
	mu     sync.Mutex
	conns  map[*dialed]struct{}
	closed bool
}

// dialed is one of the connections.
type dialed struct {
	net.Conn
	of *Dialed
}

// Dial makes a connection.
func (d *Dialed) Dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	n, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &dialed{Conn: n, of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		n.Close()
		return nil, net.ErrClosed
	}
	if d.conns == nil {
		d.conns = map[*dialed]struct{}{}
	}
	d.conns[c] = struct{}{}
	return c, nil
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Close closes all connections, and those that are made later.
func (d *Dialed) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.Drop()
}

// Drop closes all connections that there are.
func (d *Dialed) Drop() {
	d.mu.Lock()
	conns := d.conns
	d.conns = nil
	d.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}
