package rueidisconn

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// opened is the Conn of a store URL. When a driver uses it, requests go by connections on which
// callers write and read in their own goroutines: see package wire. While there are none, for
// example because the server is being started again, requests go by the client of rueidis, and get
// its errors.
type opened struct {
	conn
	option   rueidis.ClientOption
	shared   atomic.Pointer[wire.Line] // nil: no driver uses it
	reserved *wire.Line                // for renewals and releases
	leaver   *leaver                   // nil: another package knows the connections
}

// Do implements redislock.Conn.
func (c *opened) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	return c.do(ctx, c.shared.Load(), commands)
}

// do sends commands over a line, if there is one and it is connected.
func (c *opened) do(ctx context.Context, line *wire.Line, commands []redislock.Command) (replies []redislock.Reply) {
	sent := false
	if line != nil {
		replies, sent = line.Do(ctx, commands)
	}
	if !sent {
		replies = c.conn.Do(ctx, commands)
	}
	c.leaver.note(replies)
	return replies
}

// reservedPatience is how long the server may owe replies on the connection of renewals and
// releases, and send nothing, before it is made anew when one of them gives up.
const reservedPatience = time.Second

// Reserve implements redislock.Reserver.
func (c *opened) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	c.reserved = c.line(reservedPatience)
	c.shared.Store(c.line(dialTimeout))
	return func(ctx context.Context, commands []redislock.Command) []redislock.Reply {
		return c.do(ctx, c.reserved, commands)
	}
}

// line returns a line to the server of the URL.
func (c *opened) line(patience time.Duration) *wire.Line {
	o := &c.option
	var hello []redislock.Command
	if auth := credentials(o); auth != nil {
		hello = append(hello, redislock.Command{Args: append([]string{"AUTH"}, auth...)})
	}
	if o.SelectDB != 0 {
		hello = append(hello, redislock.Command{Args: []string{"SELECT", strconv.Itoa(o.SelectDB)}})
	}
	return wire.Open(wire.Options{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return o.DialCtxFn(ctx, o.InitAddress[0], &o.Dialer, o.TLSConfig)
		},
		Hello: hello, Patience: patience,
	})
}

// credentials returns the arguments of AUTH, or nil if there is no user.
func credentials(o *rueidis.ClientOption) []string {
	switch {
	case o.Username != "": // a user may need no password
		return []string{o.Username, o.Password}
	case o.Password != "":
		return []string{o.Password}
	}
	return nil
}

// Close implements redislock.Conn.
func (c *opened) Close() error {
	if line := c.shared.Load(); line != nil {
		line.Close()
		c.reserved.Close()
	}
	c.client.Close()
	return nil
}
