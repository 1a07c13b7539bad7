// Package goredisconn lets package redislock speak through the client library
// go-redis, for programs that have such a client already:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	conn := goredisconn.Wrap(client)
//	d, err := redislock.New(ctx, conn, nil)
//	...
//	locks, err := holdfast.New(d, nil)
//
// [OpenSentinel] and [OpenCluster] are for deployments of more than one server; they make connections of
// their own. The package registers no URL scheme: that is for package rueidisconn.
package goredisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// Wrap returns a redislock.Conn over a client of a single node. The caller closes the client, after the
// driver. The client may have any options; the commands of locks are sent once, whatever its options
// say of retries.
//
// With redislock.Options.Replicas the client's ReadTimeout must be longer than a second: the server takes
// up to that long to reply that replicas are slow.
//
// When the context of a request ends, the request goes on in the background, until its reply comes,
// the client's ReadTimeout is over or the client is closed.
//
// Acquires share the client's pool with the rest of the program, and wait while the program uses it
// up. Renewals and releases have one or two connections of their own, made with the client's options,
// but without its hooks and its Limiter.
func Wrap(client *redis.Client) redislock.Conn { return &conn{client: client} }

type conn struct {
	client  *redis.Client
	reserve *reserve // nil: nobody has asked for it
}

// command is a command that go-redis does not send a second time.
type command struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (command) NoRetry() bool { return true }

func newCommand(ctx context.Context, c *redislock.Command) command {
	args := make([]any, len(c.Args))
	for i, arg := range c.Args {
		args[i] = arg
	}
	return command{redis.NewCmd(ctx, args...)}
}

// Do implements redislock.Conn. While go-redis waits for a reply it does not look at its context, so a
// goroutine waits for that.
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	built := make([]command, len(commands))
	for i := range commands {
		built[i] = newCommand(ctx, &commands[i])
	}
	if ctx.Done() == nil {
		return exchange(ctx, c.client, built)
	}
	replies := make(chan []redislock.Reply, 1)
	go func() { replies <- exchange(ctx, c.client, built) }()
	select {
	case r := <-replies:
		return r
	case <-ctx.Done():
		return failed(len(commands), ctx.Err())
	}
}

// failed is n replies with an error.
func failed(n int, err error) []redislock.Reply {
	replies := make([]redislock.Reply, n)
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}

// Reserve implements redislock.Reserver.
func (c *conn) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	c.reserve = newReserve(c.client)
	return c.reserve.do
}

// exchange sends commands in one go and waits for the replies.
func exchange(ctx context.Context, client *redis.Client, built []command) []redislock.Reply {
	if len(built) == 1 {
		_ = client.Process(ctx, built[0]) // the command has the error too
	} else {
		pipe := client.Pipeline()
		for _, cmd := range built {
			_ = pipe.Process(ctx, cmd)
		}
		_, _ = pipe.Exec(ctx)
	}
	replies := make([]redislock.Reply, len(built))
	for i, cmd := range built {
		replies[i] = reply(cmd.Result())
	}
	return replies
}

func reply(value any, err error) redislock.Reply {
	if errors.Is(err, redis.Nil) {
		return redislock.Reply{}
	}
	return redislock.Reply{Value: value, Err: failure(err)}
}

// failure makes a server's error a ServerError.
func failure(err error) error {
	if refused := redis.Error(nil); errors.As(err, &refused) {
		return &redislock.ServerError{Text: strings.TrimPrefix(refused.Error(), "ERR ")}
	}
	return err
}

// silence is how long a subscription is idle before the server is sent a PING. If nothing comes for as
// long again, the connection is closed.
const silence = 10 * time.Second

// Subscribe implements redislock.Conn, on a connection of its own.
func (c *conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.Session(ctx, channel, false, deliver)
	}, deliver)
}

// Session subscribes once. While go-redis connects it does not look at its context, so a goroutine
// waits for that.
func (c *conn) Session(ctx context.Context, channel string, sharded bool, deliver func(string)) (subscription.Session, error) {
	ps := c.client.Subscribe(ctx) // to nothing yet, so it does not connect
	subscribe := ps.Subscribe
	if sharded {
		subscribe = ps.SSubscribe
	}
	first := make(chan error, 1)
	go func() {
		err := subscribe(ctx, channel)
		if err == nil {
			_, err = ps.Receive(ctx)
		}
		first <- err
	}()
	var err error
	select {
	case err = <-first:
	case <-ctx.Done():
		go func() {
			ps.Close() // ends the receiving, when the connecting is over
			<-first
		}()
		return subscription.Session{}, ctx.Err()
	}
	if err != nil {
		ps.Close()
		return subscription.Session{}, failure(err)
	}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		receive(ps, func(received any) bool {
			switch m := received.(type) {
			case *redis.Message:
				deliver(m.Payload)
			case *redis.Subscription: // the server ends it: it has the channel's slot no more
				return false
			}
			return true
		})
	}()
	return subscription.Session{Lost: lost, Close: func() { ps.Close(); <-lost }}, nil
}

// receive calls heard with all that is received, until that returns false or the connection is lost. It
// does not let go-redis subscribe again, because go-redis would not report that messages may have been
// lost.
func receive(ps *redis.PubSub, heard func(any) bool) {
	ctx := context.Background()
	for asked := false; ; {
		m, err := ps.ReceiveTimeout(ctx, silence)
		timeout := net.Error(nil)
		switch {
		case err == nil:
			asked = false
			if !heard(m) {
				return
			}
		case errors.As(err, &timeout) && timeout.Timeout() && !asked && ps.Ping(ctx) == nil:
			asked = true
		default:
			return
		}
	}
}

// Close implements redislock.Conn.
func (c *conn) Close() error {
	if c.reserve == nil {
		return nil
	}
	return c.reserve.close()
}
