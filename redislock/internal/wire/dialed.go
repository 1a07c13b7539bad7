package wire

import (
	"context"
	"net"
	"sync"
)

// Dialed knows the connections of a client, so that all can be closed at once: when another server has become
// the primary, and when the client is closed. The zero value is ready, and safe for concurrent use.
type Dialed struct {
	mu     sync.Mutex
	conns  map[*dialed]struct{}
	closed bool
}

// dialed is one of the connections.
type dialed struct {
	net.Conn
	of      *Dialed
	address string
}

// Dial makes a connection to an address.
func (d *Dialed) Dial(
	ctx context.Context, address string, dial func(ctx context.Context, address string) (net.Conn, error),
) (net.Conn, error) {
	n, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &dialed{Conn: n, of: d, address: address}
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
	d.Drop("")
}

// Drop closes all connections but those to the address.
func (d *Dialed) Drop(but string) {
	d.mu.Lock()
	var stale []*dialed
	for c := range d.conns {
		if c.address != but {
			stale = append(stale, c)
			delete(d.conns, c)
		}
	}
	d.mu.Unlock()
	for _, c := range stale {
		c.Conn.Close()
	}
}
