package goredisconn

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
)

// OpenSentinel returns a redislock.Conn to the primary that sentinels name, with connections of its own.
// Options are those of the servers, and Addr means nothing; the sentinels get the same user and password
// if they want one, and TLS if the servers do. Primary is the name by which the sentinels know it. The
// sentinels are host:port.
//
// Wrap, over a client of redis.NewFailoverClient, is no substitute: its renewals may stay with a primary
// that is none any more. Suppose an operator orders a fail-over: then the old one takes writes for about
// ten seconds more, and forgets them.
func OpenSentinel(options *redis.Options, primary string, sentinels ...string) redislock.Conn {
	o := *options
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(options)
	}
	l := sentinel.New(sentinel.Options{
		Sentinels: sentinels, Primary: primary, Auth: credentials(&o),
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) },
	})
	o.Addr = primary // a name to people: nobody looks it up
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
	return sentinel.Conn(&owned{conn{client: redis.NewClient(&o)}}, l)
}

// credentials returns the arguments of AUTH, or nil if there is no user.
func credentials(o *redis.Options) []string {
	switch {
	case o.Username != "": // a user may need no password
		return []string{o.Username, o.Password}
	case o.Password != "":
		return []string{o.Password}
	}
	return nil
}

// owned is a Conn that closes its client too.
type owned struct{ conn }

// Close implements redislock.Conn.
func (c *owned) Close() error {
	c.conn.Close()
	return c.client.Close()
}
