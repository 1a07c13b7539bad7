package cell

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// connections are those that a client has made, so that all of them can be closed: the HTTP library
// closes only those that it knows to be idle.
type connections struct {
	dialer net.Dialer
	tls    func() *tls.Config

	mu     sync.Mutex
	closed bool
	open   map[*connection]bool
}

// connection is one of them.
type connection struct {
	net.Conn
	of *connections
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func newConnections(config func() *tls.Config) *connections {
	return &connections{
		dialer: net.Dialer{Timeout: dialWithin, KeepAlive: 15 * time.Second}, tls: config, open: map[*connection]bool{},
	}
}

// dial makes a connection.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	}
	of := &connection{conn, c}
	c.open[of] = true
	return of, nil
}

// dialTLS makes a connection with TLS.
func (c *connections) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := c.tls()
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return conn, nil
}

// close closes all connections. None can be made any more.
func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = map[*connection]bool{}
	c.mu.Unlock()
	for conn := range open {
		conn.Conn.Close()
	}
}
