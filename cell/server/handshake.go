package server

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// What thousands of connections cost on which one call is parked, and nothing else happens.

// rarelyCompressed leaves nearly all answers as they are: they are not worth it.
var rarelyCompressed = connect.WithCompressMinBytes(4 << 10)

// noTable is the size of a table in which HTTP/2 puts no headers, of answers. To remember those of the last
// one costs memory for each connection, and saves some bytes of an answer that comes every ten seconds. The
// table of requests stays as it is: the first of a connection come before the client can know of another size.
const noTable = 1

// greeter is a listener of TLS whose connections have had their handshake. That needs a large stack, which
// a goroutine keeps: those that serve connections for as long as they last should not have it.
type greeter struct {
	net.Listener               // of TLS
	within       time.Duration // for a handshake
	ready        chan greeted
	closed       chan struct{}
	closing      sync.Once
}

// greeted is what Accept returns.
type greeted struct {
	conn net.Conn
	err  error
}

func newGreeter(l net.Listener, within time.Duration) *greeter {
	g := &greeter{Listener: l, within: within, ready: make(chan greeted), closed: make(chan struct{})}
	go g.accept()
	return g
}

func (g *greeter) accept() {
	for {
		conn, err := g.Listener.Accept()
		if err == nil {
			go g.greet(conn)
			continue
		}
		select {
		case g.ready <- greeted{err: err}:
		case <-g.closed:
			return
		}
	}
}

func (g *greeter) greet(conn net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), g.within)
	defer cancel()
	if secure, ok := conn.(*tls.Conn); ok && secure.HandshakeContext(ctx) != nil {
		conn.Close()
		return
	}
	select {
	case g.ready <- greeted{conn: conn}:
	case <-g.closed:
		conn.Close()
	}
}

// Accept implements net.Listener.
func (g *greeter) Accept() (net.Conn, error) {
	select {
	case next := <-g.ready:
		return next.conn, next.err
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *greeter) Close() error {
	g.closing.Do(func() { close(g.closed) })
	return g.Listener.Close()
}
