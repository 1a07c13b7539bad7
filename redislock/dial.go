package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Dial connects to the servers that a store URL names, for programs that need more than locks. The caller closes
// the Conn, which is a Clustered to a cluster. A refusal by the server is a *ServerError, in an error that says
// what to do. No error shows the password.
func Dial(ctx context.Context, u *url.URL) (Conn, error) { return DialBy(ctx, u, nil) }

// DialBy is like Dial, by connections that dial makes, through a tunnel for instance, to sentinels and servers
// alike. TLS is added to them where the URL says so. The arguments are as for net.Dialer.DialContext.
func DialBy(ctx context.Context, u *url.URL, dial func(ctx context.Context, network, address string) (net.Conn, error)) (Conn, error) {
	to, _, err := parse(u)
	if err != nil {
		return nil, err
	}
	if dial != nil {
		to.by = dial
	}
	conn, err := to.connect(ctx)
	if err != nil {
		return nil, explained(u, err)
	}
	return conn, nil
}

// target is what a URL names.
type target struct {
	network        string   // tcp or unix
	addresses      []string // of servers or sentinels; of a socket its path
	primary        string   // as sentinels know it; "": there are none
	cluster        bool
	user, password string
	database       int
	tls            func() *tls.Config // for each connection; nil: without TLS
	by             func(ctx context.Context, network, address string) (net.Conn, error)
}

// connect makes the first contact before ctx ends.
func (to *target) connect(ctx context.Context) (conn Conn, err error) {
	switch {
	case to.primary != "":
		conn = to.follow()
	case to.cluster:
		c, err := cluster.Open(ctx, cluster.Options{Seeds: to.addresses, Server: func(address string) wire.Options {
			return to.options(address, new(wire.Dialed))
		}})
		if err != nil {
			return nil, err // and not a *cluster.Conn that is nil
		}
		return c, nil
	default:
		conn = wire.Open(to.options(to.addresses[0], new(wire.Dialed)))
	}
	if err := conn.Do(ctx, []Command{{Args: []string{"PING"}}})[0].Err; err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// demotedFor is how long after a reply that says that the server is a replica the connections are made anew, where
// no sentinels say which is the primary: a fail-over that is under way may change its mind.
const demotedFor = time.Second

// options say how to connect to the server at an address. When replies say that it is a replica, all connections are
// closed, and made anew: an operator may have let the address lead to another primary.
func (to *target) options(address string, dialed *wire.Dialed) wire.Options {
	o, leaving, wait := wire.Options{Dialed: dialed}, new(atomic.Bool), demotedFor
	if to.primary != "" {
		wait = 0
	}
	o.Replied = func(replies []Reply) {
		if wire.Demoted(replies) && !leaving.Swap(true) {
			time.AfterFunc(wait, func() { leaving.Store(false); dialed.Drop("") })
		}
	}
	o.Dial = func(ctx context.Context) (net.Conn, error) { return dialed.Dial(ctx, address, to.dial) }
	if auth := to.credentials(); auth != nil {
		o.Hello = append(o.Hello, Command{Args: append([]string{"AUTH"}, auth...)})
	}
	if to.database != 0 {
		o.Hello = append(o.Hello, Command{Args: []string{"SELECT", strconv.Itoa(to.database)}})
	}
	return o
}

func (to *target) dial(ctx context.Context, address string) (net.Conn, error) {
	n, err := to.by(ctx, to.network, address)
	if err != nil || to.tls == nil {
		return n, err
	}
	config := to.tls()
	config.ServerName, _, _ = net.SplitHostPort(address)
	secured := tls.Client(n, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return secured, nil
}

// credentials returns the arguments of AUTH, or nil if there is no user.
func (to *target) credentials() []string {
	switch {
	case to.user != "": // a user may need no password
		return []string{to.user, to.password}
	case to.password != "":
		return []string{to.password}
	}
	return nil
}

// follower is a Conn to the primary that sentinels name, whose connections end when another server becomes the
// primary, and are made anew to that one.
type follower struct {
	*wire.Server
	sentinels *sentinel.Locator
}

func (to *target) follow() *follower {
	dialed := new(wire.Dialed)
	l := sentinel.New(sentinel.Options{
		Sentinels: to.addresses, Primary: to.primary, Dial: to.dial, Dialed: dialed, Auth: to.credentials(),
	})
	o := to.options("", dialed)
	l.Follow(&o)
	return &follower{wire.Open(o), l}
}

// Close implements Conn.
func (f *follower) Close() error {
	err := f.Server.Close()
	f.sentinels.Close()
	return err
}

// explained returns the error of a first contact as a refusal by the server or as an error of the network. Errors
// of TLS, and of a server that is not Redis, are of the network. A server that does not speak TLS takes the first
// message for the beginning of a command, and does not reply.
func explained(u *url.URL, err error) error {
	if isRefusal(err) {
		return Explain(err)
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		if network.Timeout() && strings.HasPrefix(u.Scheme, "rediss") {
			return fmt.Errorf("no TLS connection: if the server does not speak TLS there, the scheme is redis%s: %w",
				strings.TrimPrefix(u.Scheme, "rediss"), err)
		}
		return err
	}
	return &net.OpError{Op: "greet", Net: "redis", Err: err}
}

// deployment is how the servers are deployed. What a fault can break depends on it: see guaranteesOf.
type deployment int

const (
	oneServer     deployment = iota // or one address behind which a service may put another
	withSentinels                   // a primary with replicas, of which sentinels promote one when the primary is gone
	clustered                       // masters that have the keys of some hash slots each, with replicas
)

// deploymentOf returns how the servers of a Conn are deployed, as far as it tells.
func deploymentOf(conn Conn) deployment {
	switch conn.(type) {
	case Clustered:
		return clustered
	case *follower:
		return withSentinels
	}
	return oneServer
}

// Shard implements driver.Sharder, for layouts in which a lock is at its bare name.
func (c *link) Shard(req driver.Request) string { return c.part(req.Name) }

// Shard implements driver.Sharder.
func (c *client) Shard(req driver.Request) string {
	if !c.cluster {
		return ""
	}
	return c.part(c.layout.record(req.Name))
}

// part returns the server that has a key, or "" if there is but one, or none is known.
func (c *link) part(key string) string {
	if p, ok := c.conn.(Clustered); ok {
		return p.Part(key)
	}
	return ""
}

// parts returns the servers that have keys: one that is "" if there is but one.
func (c *link) parts() []string {
	if p, ok := c.conn.(Clustered); ok {
		return p.Parts()
	}
	return []string{""}
}
