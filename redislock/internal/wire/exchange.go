package wire

import (
	"context"
	"net"

	"github.com/holdfastlock/holdfast/redislock"
)

// Exchange sends commands on a connection that nobody else uses and that awaits no reply, and returns
// their replies. If it returns no error, the connection is as before, and may be given to a client
// library. After an error it must be closed.
func Exchange(ctx context.Context, n net.Conn, commands []redislock.Command) ([]redislock.Reply, error) {
	stop := context.AfterFunc(ctx, func() { n.SetDeadline(past) })
	replies, err := exchange(n, commands)
	if !stop() { // the deadline is set, or is being set
		return nil, ctx.Err()
	}
	return replies, err
}

func exchange(n net.Conn, commands []redislock.Command) ([]redislock.Reply, error) {
	if _, err := n.Write(appendCommands(nil, commands)); err != nil {
		return nil, err
	}
	var replies []redislock.Reply
	var p parser
	in := make([]byte, 0, ioBuffer)
	for {
		for len(replies) < len(commands) {
			r, size, err := p.next(in)
			if err != nil {
				return nil, err
			}
			if size == 0 {
				break
			}
			replies, in = append(replies, r), in[size:]
		}
		switch {
		case len(replies) == len(commands) && len(in) > 0, len(in) > largestReply:
			return nil, errProtocol
		case len(replies) == len(commands):
			return replies, nil
		}
		if cap(in)-len(in) < ioBuffer {
			in = append(make([]byte, 0, 2*len(in)+2*ioBuffer), in...)
		}
		got, err := n.Read(in[len(in):cap(in)])
		in = in[:len(in)+got]
		if err != nil {
			return nil, err
		}
	}
}
