package wire

import (
	"context"
	"net"
	"os"
	"slices"
	"time"
)

// connectWithin bounds one attempt to connect.
const connectWithin = 5 * time.Second

// connect connects, and says who the client is. It ends with a PING: a server that has too many connections accepts
// one and then closes it. The error is the server's refusal or one of the network.
func connect(ctx context.Context, o *Options, patience time.Duration) (*conn, error) {
	own, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	n, err := o.Dial(own)
	if err == nil {
		c := newConn(n, patience)
		if err = c.greet(own, o); err == nil {
			return c, nil
		}
		c.fail(err)
	}
	if own.Err() != nil && ctx.Err() == nil {
		err = &net.OpError{Op: "greet", Net: "redis", Err: os.ErrDeadlineExceeded}
	}
	return nil, err
}

// greet sends the first commands.
func (c *conn) greet(ctx context.Context, o *Options) error {
	replies, _ := c.do(ctx, append(slices.Clone(o.Hello), Command{Args: []string{"PING"}}))
	if o.Greeted != nil {
		return o.Greeted(replies)
	}
	for _, r := range replies {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
