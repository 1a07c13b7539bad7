// Package goredisconn lets package redislock speak through the client library
// go-redis, for programs that have such a client already:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	conn := goredisconn.Wrap(client)
//	d, err := redislock.New(ctx, conn, nil)
//	...
//	locks, err := holdfast.New(d, nil)
//
// Opened by a URL, package redislock uses a client of its own, which is faster, keeps a connection for renewals,
// and knows sentinels and clusters.
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
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Wrap returns a redislock.Conn over a client of a single node. The caller closes the client, after the
// driver. The client may have any options; the commands of locks are sent once, whatever its options
// say of retries. A client of redis.NewFailoverClient is refused by redislock.New: open redis+sentinel:// instead.
//
// With redislock.Options.Replicas the client's ReadTimeout must be longer than a second: the server takes
// up to that long to reply that replicas are slow.
//
// When the context of a request ends, the request goes on in the background, until its reply comes,
// the client's ReadTimeout is over or the client is closed.
//
// All requests share the client's pool with the rest of the program. While the program uses the pool up,
// renewals wait too, and a lease that cannot be renewed in time is lost, as its holder is told (P2).
func Wrap(client *redis.Client) redislock.Conn { return &conn{client} }

type conn struct{ client *redis.Client }

// command is a command that go-redis does not send a second time.
type command struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (command) NoRetry() bool { return true }

var errSentinels = errors.New("the client of go-redis is of sentinels, not of a single node: open redis+sentinel:// instead")

// ofSentinels is the address that go-redis gives a client of redis.NewFailoverClient.
const ofSentinels = "FailoverClient"

// Do implements redislock.Conn. While go-redis waits for a reply it does not look at its context, so a
// goroutine waits for that (P11).
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	if c.client.Options().Addr == ofSentinels {
		return wire.Failed(len(commands), errSentinels)
	}
	built := make([]command, len(commands)) // the caller may change its own after the return
	for i := range commands {
		args := make([]any, len(commands[i].Args))
		for j, arg := range commands[i].Args {
			args[j] = arg
		}
		built[i] = command{redis.NewCmd(ctx, args...)}
	}
	if ctx.Done() == nil {
		return c.exchange(ctx, built)
	}
	replies := make(chan []redislock.Reply, 1)
	go func() { replies <- c.exchange(ctx, built) }()
	select {
	case r := <-replies:
		return r
	case <-ctx.Done():
		return wire.Failed(len(commands), ctx.Err())
	}
}

// exchange sends commands in one go and waits for the replies.
func (c *conn) exchange(ctx context.Context, built []command) []redislock.Reply {
	if len(built) == 1 {
		_ = c.client.Process(ctx, built[0]) // the command has the error too
	} else {
		pipe := c.client.Pipeline()
		for _, cmd := range built {
			_ = pipe.Process(ctx, cmd)
		}
		_, _ = pipe.Exec(ctx)
	}
	replies := make([]redislock.Reply, len(built))
	for i, cmd := range built {
		value, err := cmd.Result()
		if !errors.Is(err, redis.Nil) {
			replies[i] = redislock.Reply{Value: value, Err: failure(err)}
		}
	}
	return replies
}

// failure makes a server's error a ServerError.
func failure(err error) error {
	if refused := redis.Error(nil); errors.As(err, &refused) {
		return &redislock.ServerError{Text: strings.TrimPrefix(refused.Error(), "ERR ")}
	}
	return err
}

// Subscribe implements redislock.Conn, on a connection of its own.
func (c *conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.session(ctx, channel, deliver)
	}, deliver)
}

// session subscribes once. While go-redis connects it does not look at its context, so a goroutine
// waits for that.
func (c *conn) session(ctx context.Context, channel string, deliver func(string)) (subscription.Session, error) {
	ps := c.client.Subscribe(ctx) // to nothing yet, so it does not connect
	first := make(chan error, 1)
	go func() {
		err := ps.Subscribe(ctx, channel)
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
		receive(ps, deliver)
	}()
	return subscription.Session{Lost: lost, Close: func() { ps.Close(); <-lost }}, nil
}

// silence is how long a subscription is idle before the server is sent a PING. If nothing comes for as
// long again, the connection is lost.
const silence = 10 * time.Second

// receive delivers messages until the connection is lost. It does not let go-redis subscribe again, because
// go-redis would not report that messages may have been lost.
func receive(ps *redis.PubSub, deliver func(string)) {
	ctx := context.Background()
	for asked := false; ; {
		received, err := ps.ReceiveTimeout(ctx, silence)
		timeout := net.Error(nil)
		switch {
		case err == nil:
			asked = false
			if m, ok := received.(*redis.Message); ok {
				deliver(m.Payload)
			}
		case errors.As(err, &timeout) && timeout.Timeout() && !asked && ps.Ping(ctx) == nil:
			asked = true
		default:
			return
		}
	}
}

// Close implements redislock.Conn.
func (c *conn) Close() error { return nil }
