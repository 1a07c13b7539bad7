package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
)

// followed is the Conn of a store URL with sentinels. It is one to a single server, whose connections
// end when another server becomes the primary, and are made anew to that one.
type followed struct {
	*opened
	primary *sentinel.Locator
}

// follow connects to the primary that sentinels name.
func follow(option rueidis.ClientOption) (redislock.Conn, error) {
	dial, dialer, secured := option.DialCtxFn, option.Dialer, option.TLSConfig
	o := sentinel.Options{
		Sentinels: option.InitAddress, Primary: option.Sentinel.MasterSet, Poll: sentinelPoll,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, address, &dialer, secured)
		},
		Auth: credentials(&option),
	}
	primary := sentinel.New(o)
	option.Sentinel = rueidis.SentinelOption{}
	option.InitAddress = []string{o.Primary}
	option.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return primary.Dial(ctx)
	}
	conn, err := single(option)
	if err != nil {
		primary.Close()
		return nil, err
	}
	return &followed{opened: conn, primary: primary}, nil
}

// sentinelPoll is how often the sentinels are asked for the primary, at least.
const sentinelPoll = time.Second

// Do implements redislock.Conn.
func (c *followed) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	replies := c.opened.Do(ctx, commands)
	c.primary.Note(replies)
	return replies
}

// Reserve implements redislock.Reserver.
func (c *followed) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	do := c.opened.Reserve()
	return func(ctx context.Context, commands []redislock.Command) []redislock.Reply {
		replies := do(ctx, commands)
		c.primary.Note(replies)
		return replies
	}
}

// Deployment implements redislock.Deployed.
func (c *followed) Deployment() redislock.Deployment { return redislock.Sentinel }

// Close implements redislock.Conn.
func (c *followed) Close() error {
	err := c.opened.Close()
	c.primary.Close()
	return err
}
