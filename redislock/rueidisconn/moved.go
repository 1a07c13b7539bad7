package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
)

// Suppose that an operator promotes a replica by hand, lets the address that clients know lead there, and
// makes the old primary a replica. It keeps its connections, and refuses all that is written over them,
// for ever. So when replies have said for a second that the server is a replica, all connections are closed,
// and made anew to where the address leads now. Not at once: a fail-over that is under way changes its mind,
// and requests that wait for their replies on a connection which is closed have uncertain outcomes.

// atAddress connects to the server at an address, which may come to lead to another one.
func atAddress(option rueidis.ClientOption) (redislock.Conn, error) {
	l, dial := &leaver{conns: map[*leavable]struct{}{}}, option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, secured *tls.Config) (net.Conn, error) {
		n, err := dial(ctx, address, dialer, secured)
		if err != nil {
			return nil, err
		}
		return l.add(n), nil
	}
	c, err := single(option)
	if err != nil {
		return nil, err // and not an *opened that is nil
	}
	c.leaver = l
	return c, nil
}

// leaver knows the connections to an address.
type leaver struct {
	mu    sync.Mutex
	conns map[*leavable]struct{}

	first, last time.Time // replies that say that the server is a replica, since the connections were closed
}

// leavable is one of them.
type leavable struct {
	net.Conn
	of *leaver
}

// stay is for how long the server has to say that it is a replica, and the shortest time between two
// departures from an address that leads to a replica for good. After a silence of forgotten it counts anew.
const (
	stay      = time.Second
	forgotten = 10 * stay
)

func (l *leaver) add(n net.Conn) net.Conn {
	c := &leavable{n, l}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c
}

// Close implements net.Conn.
func (c *leavable) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// note closes all connections if replies have said for a while that the server is a replica.
func (l *leaver) note(replies []redislock.Reply) {
	if l == nil || !sentinel.Demoted(replies) {
		return
	}
	for _, c := range l.due(time.Now()) {
		c.Conn.Close()
	}
}

// due notes such a reply, and returns the connections that are to be closed.
func (l *leaver) due(now time.Time) (all []*leavable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) >= forgotten {
		l.first = now
	}
	l.last = now
	if now.Sub(l.first) < stay {
		return nil
	}
	l.first = now
	for c := range l.conns {
		all = append(all, c)
	}
	return all
}
