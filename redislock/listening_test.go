package redislock

import (
	"bufio"
	"context"
	"net"
	"time"
)

// Listen implements Listener.
func (c *respConn) Listen(_ context.Context, heard func(channel, message string)) (Listening, error) {
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	l := &respListening{conn: conn, lost: make(chan struct{})}
	go func() {
		defer close(l.lost)
		for in := bufio.NewReader(conn); ; {
			push, err := receive(in)
			if err != nil {
				return
			}
			switch fields := push.([]any); fields[0] {
			case "subscribe":
				heard(fields[1].(string), "")
			case "message":
				heard(fields[1].(string), fields[2].(string))
			}
		}
	}()
	return l, nil
}

type respListening struct {
	conn net.Conn
	lost chan struct{}
}

func (l *respListening) Subscribe(_ context.Context, channels ...string) error {
	send(l.conn, append([]string{"SUBSCRIBE"}, channels...)...)
	return nil
}

func (l *respListening) Unsubscribe(_ context.Context, channels ...string) error {
	send(l.conn, append([]string{"UNSUBSCRIBE"}, channels...)...)
	return nil
}

func (l *respListening) Lost() <-chan struct{} { return l.lost }
func (l *respListening) Close()                { l.conn.Close(); <-l.lost }

// hanging bounds what takes no time.
const hanging = time.Minute
