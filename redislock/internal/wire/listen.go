package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// Listening is a connection for subscriptions. One goroutine uses it at a time, but Close may be called beside
// the others.
type Listening struct {
	net   net.Conn
	heard func(channel, message string)
	lost  chan struct{}
	err   error // when it is lost: why

	mu sync.Mutex // guards writes
}

// Listen returns a connection for subscriptions. Heard is called with each message, and with "" when the server
// has confirmed a channel, one call at a time. It does not block.
func (s *Server) Listen(ctx context.Context, heard func(channel, message string)) (*Listening, error) {
	c, err := connect(ctx, &s.o, silence)
	if err != nil {
		return nil, err
	}
	l := &Listening{net: c.net, heard: heard, lost: make(chan struct{})}
	go l.read()
	return l, nil
}

// Subscribe sends the channels, at least one, to the server. After an error the connection is lost.
func (l *Listening) Subscribe(ctx context.Context, channels ...string) error {
	return l.send(ctx, "SUBSCRIBE", channels)
}

// Unsubscribe is the contrary.
func (l *Listening) Unsubscribe(ctx context.Context, channels ...string) error {
	return l.send(ctx, "UNSUBSCRIBE", channels)
}

func (l *Listening) send(ctx context.Context, command string, channels []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { l.net.SetWriteDeadline(past) })
	_, err := l.net.Write(appendCommands(nil, []Command{{Args: append([]string{command}, channels...)}}, ""))
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		l.net.Close()
	}
	return err
}

// Lost returns a channel that is closed when the connection is lost, or when the server has refused a subscription.
func (l *Listening) Lost() <-chan struct{} { return l.lost }

// Close ends the connection. When it has returned, heard is not called any more.
func (l *Listening) Close() {
	l.net.Close()
	<-l.lost
}

// quiet is how long the server sends nothing before it is sent a PING. If nothing comes for as long again,
// the connection is lost.
const quiet = 5 * time.Second

func (l *Listening) read() {
	defer close(l.lost)
	defer l.net.Close()
	in := reader{Conn: l.net}
	for asked := false; ; {
		l.net.SetReadDeadline(time.Now().Add(quiet))
		push, err := in.next()
		switch {
		case err == nil:
			asked = false
			err = l.received(push)
		case errors.Is(err, os.ErrDeadlineExceeded) && !asked:
			asked = true
			ctx, cancel := context.WithTimeout(context.Background(), quiet)
			err = l.send(ctx, "PING", nil)
			cancel()
		}
		if err != nil {
			l.err = err
			return
		}
	}
}

// received handles what the server has sent: a kind, a channel and a message or a number.
func (l *Listening) received(push Reply) error {
	if push.Err != nil {
		return push.Err
	}
	fields, _ := push.Value.([]any)
	if len(fields) != 3 {
		return nil // of a PING
	}
	channel, _ := fields[1].(string)
	switch fields[0] {
	case "message":
		message, _ := fields[2].(string)
		l.heard(channel, message)
	case "subscribe":
		l.heard(channel, "")
	}
	return nil
}

// Session subscribes to a channel for as long as the connection lasts.
func (s *Server) Session(ctx context.Context, channel string, deliver func(string)) (subscription.Session, error) {
	confirmed, first := make(chan struct{}), true
	l, err := s.Listen(ctx, func(_, message string) {
		if first {
			first = false
			close(confirmed)
			return
		}
		deliver(message)
	})
	if err != nil {
		return subscription.Session{}, err
	}
	if err = l.Subscribe(ctx, channel); err == nil {
		select {
		case <-confirmed:
			return subscription.Session{Lost: l.lost, Close: l.Close}, nil
		case <-l.lost:
			err = l.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.Close()
	return subscription.Session{}, err
}
