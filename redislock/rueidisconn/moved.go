package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
)

// Suppose that an operator promotes a replica by hand, lets the address that clients know lead there, and
// makes the old primary a replica. It keeps its connections, and refuses all that is written over them,
// for ever. So when replies have said for a second that the server is a replica, all connections are closed,
// and made anew to where the address leads now. Not at once: a fail-over that is under way changes its mind,
// and requests that wait for their replies on a connection which is closed have uncertain outcomes.

// atAddress connects to the server at an address, which may come to lead to another one.
func atAddress(option rueidis.ClientOption) (redislock.Conn, error) {
	l := &leaver{}
	c, err := single(through(option, &l.dialed))
	if err != nil {
		return nil, err // and not an *opened that is nil
	}
	c.leaver = l
	return c, nil
}

// through returns the option with connections that are known to dialed.
func through(option rueidis.ClientOption, dialed *cluster.Dialed) rueidis.ClientOption {
	dial := option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, secured *tls.Config) (net.Conn, error) {
		return dialed.Dial(ctx, func(ctx context.Context) (net.Conn, error) { return dial(ctx, address, dialer, secured) })
	}
	return option
}

// leaver closes the connections to an address when it is time.
type leaver struct {
	dialed cluster.Dialed

	mu          sync.Mutex
	first, last time.Time // replies that say that the server is a replica, since the connections were closed
}

// stay is for how long the server has to say that it is a replica, and the shortest time between two
// departures from an address that leads to a replica for good. After a silence of forgotten it counts anew.
const (
	stay      = time.Second
	forgotten = 10 * stay
)

// note closes all connections if replies have said for a while that the server is a replica.
func (l *leaver) note(replies []redislock.Reply) {
	if l == nil || !sentinel.Demoted(replies) {
		return
	}
	if l.due(time.Now()) {
		l.dialed.Drop()
	}
}

// due notes such a reply, and reports whether it is time.
func (l *leaver) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) >= forgotten {
		l.first = now
	}
	l.last = now
	if now.Sub(l.first) < stay {
		return false
	}
	l.first = now
	return true
}
