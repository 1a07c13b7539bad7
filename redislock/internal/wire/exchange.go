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

// connect connects, and says who the client is. The error is the server's refusal or one of the network.
func connect(ctx context.Context, o *Options) (net.Conn, error) {
	own, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	n, err := o.Dial(own)
	if err == nil {
		if err = greet(own, n, o); err != nil {
			n.Close()
		}
	}
	switch {
	case err == nil:
		return n, nil
	case own.Err() != nil && ctx.Err() == nil:
		return nil, &net.OpError{Op: "greet", Net: "redis", Err: os.ErrDeadlineExceeded}
	}
	return nil, err
}

// greet sends the first commands, and a PING: a server that has too many connections accepts one and then
// closes it. After an error the connection must be closed.
func greet(ctx context.Context, n net.Conn, o *Options) error {
	stop := context.AfterFunc(ctx, func() { n.SetDeadline(past) })
	replies, err := exchange(n, append(slices.Clone(o.Hello), Command{Args: []string{"PING"}}))
	if !stop() { // the deadline is set, or is being set
		return ctx.Err()
	}
	if o.Greeted != nil && err == nil {
		return o.Greeted(replies)
	}
	for _, r := range replies {
		if r.Err != nil {
			return r.Err
		}
	}
	return err
}

// exchange sends commands on a connection that nobody else uses and that awaits no reply, and returns
// their replies: with an error those that came before.
func exchange(n net.Conn, commands []Command) ([]Reply, error) {
	if _, err := n.Write(appendCommands(nil, commands)); err != nil {
		return nil, err
	}
	var replies []Reply
	in := reader{Conn: n}
	for len(replies) < len(commands) {
		r, err := in.next()
		if err != nil {
			return replies, err
		}
		replies = append(replies, r)
	}
	if len(in.in) > 0 {
		return replies, errProtocol
	}
	return replies, nil
}
