// Package rueidisconn lets package redislock speak through the client library
// rueidis, and registers the URL schemes redis, rediss (TLS) and redis+unix:
//
//	redis://user:password@host:6379/0
//	rediss://user:password@host:6379/0
//	redis+unix://user:password@/run/redis/redis.sock?hf.db=0
//
// The database is 0 if none is given, the port 6379. The parameter of our own is
// that of redislock.Options:
//
//	hf.wait=push  waiters are told; hf.wait=spin: they ask again and again
//
// Keys and channels begin with redislock.DefaultPrefix; a program that wants
// another prefix there wraps a client, see [Wrap] and redislock.Options. The
// parameter hf.prefix, which package holdfast takes of every store's URL, is a prefix of names.
//
// and for rediss, where the server proves its name by a certificate that the
// system trusts:
//
//	hf.ca=FILE               trust these authorities instead, in PEM form
//	hf.cert=FILE&hf.key=FILE show this certificate, with this key, to the server
//
// The files are read again for each connection.
//
// A client opened by URL has three connections: one that pipelines requests, one of
// their own for renewals and releases, and one that hears of hand-offs. A server that
// speaks RESP2 only, before Redis 6, gets renewals and releases on the first.
package rueidisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// Wrap returns a redislock.Conn over a client that the caller keeps and closes,
// after the driver. It pipelines, also when it has a single caller. The client
// must be one of a single node, and its ClientOption.ConnLifetime 0: rueidis sends
// what was under way on a connection that ends by its lifetime a second time, when
// the server has not answered for a second, whatever DisableRetry says. A request
// that takes effect twice may leave a hold behind, until its TTL ends (P6).
//
// Acquires share the client's pipeline with the rest of the program. Hand-offs, and
// renewals with releases, each keep one connection of the client's pool for blocking
// commands (ClientOption.BlockingPoolSize): while the program uses up that pool,
// renewals go by the shared pipeline too.
func Wrap(client rueidis.Client) redislock.Conn {
	return &conn{client: client, reserve: reserve{client: client}}
}

type conn struct {
	client  rueidis.Client
	reserve reserve
}

// Do implements redislock.Conn. An arbitrary command is none of those that
// rueidis sends again, as long as connections have no lifetime: see Wrap.
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	return aside(ctx, c.client, commands)
}

// sender is a client of rueidis, or one of its connections.
type sender interface {
	B() rueidis.Builder
	Do(context.Context, rueidis.Completed) rueidis.RedisResult
	DoMulti(context.Context, ...rueidis.Completed) []rueidis.RedisResult
}

// aside sends commands and waits for the replies until ctx ends. In rueidis a request
// can wait where it does not look at its context: while a connection is made, by it or
// by another request, and for a place in a pipeline that is full. So the caller does
// not wait there itself (P11).
func aside(ctx context.Context, to sender, commands []redislock.Command) []redislock.Reply {
	if ctx.Done() == nil {
		return send(ctx, to, build(to, commands))
	}
	built := build(to, commands) // whoever has called may change them after the return
	answered := make(chan []redislock.Reply, 1)
	go func() { answered <- patiently(ctx, to, built) }()
	select {
	case replies := <-answered:
		return replies
	case <-ctx.Done():
		return failed(len(commands), ctx.Err())
	}
}

// patiently sends commands, and again if they were not sent because the request that
// was making the connection for all gave up: that one's context is not this one's.
func patiently(ctx context.Context, to sender, built []rueidis.Completed) []redislock.Reply {
	for began := time.Now(); ; {
		replies := send(cancelOnly{ctx}, to, built)
		err := replies[0].Err
		others := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !others || ctx.Err() != nil || time.Since(began) >= dialTimeout {
			return replies
		}
	}
}

// failed is the reply to n commands of which nothing is known.
func failed(n int, err error) []redislock.Reply {
	replies := make([]redislock.Reply, n)
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}

// send sends commands in one go.
func send(ctx context.Context, to sender, built []rueidis.Completed) []redislock.Reply {
	replies := make([]redislock.Reply, len(built))
	if len(built) == 1 {
		replies[0] = reply(to.Do(ctx, built[0]))
		return replies
	}
	for i, result := range to.DoMulti(ctx, built...) {
		replies[i] = reply(result)
	}
	return replies
}

// cancelOnly is a context whose deadline shows only as its end. Rueidis, where it
// does not pipeline yet, makes a deadline that it sees one of the connection, and
// gives that up with all that others have under way there (P2, P6).
type cancelOnly struct{ context.Context }

func (cancelOnly) Deadline() (time.Time, bool) { return time.Time{}, false }

// build copies the commands.
func build(to sender, commands []redislock.Command) []rueidis.Completed {
	built := make([]rueidis.Completed, len(commands))
	for i := range commands {
		args := commands[i].Args
		built[i] = to.B().Arbitrary(args[0]).Args(args[1:]...).Build()
	}
	return built
}

func reply(result rueidis.RedisResult) redislock.Reply {
	value, err := result.ToAny()
	if rueidis.IsRedisNil(err) {
		return redislock.Reply{}
	}
	return redislock.Reply{Value: value, Err: failure(err)}
}

// failure makes a server's error a ServerError.
func failure(err error) error {
	if refused, ok := rueidis.IsRedisErr(err); ok {
		return &redislock.ServerError{Text: refused.Error()}
	}
	return err
}

// Subscribe implements redislock.Conn, on a connection of its own.
func (c *conn) Subscribe(ctx context.Context, channel string, hear func(string)) (func(), error) {
	return subscription.Keep(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.subscribe(ctx, channel, hear)
	}, hear)
}

// subscribe subscribes once.
func (c *conn) subscribe(ctx context.Context, channel string, hear func(string)) (subscription.Session, error) {
	client, err := dedicate(ctx, c.client)
	if err != nil {
		return subscription.Session{}, err
	}
	confirmed := make(chan struct{}, 1)
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { hear(m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			select {
			case confirmed <- struct{}{}:
			default:
			}
		},
	})
	lost := make(chan struct{})
	var why error
	go func() {
		for why = range ended { // closed when the hooks are not called any more
		}
		close(lost)
	}()
	session := subscription.Session{Lost: lost, Close: func() { client.Close(); <-lost }}
	if err = client.Do(ctx, client.B().Subscribe().Channel(channel).Build()).Error(); err == nil {
		select {
		case <-confirmed:
			return session, nil
		case <-lost:
			err = errors.Join(errors.New("connection lost while subscribing"), why)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	session.Close()
	return session, failure(err)
}

// dedicate takes a connection of the client's pool for blocking commands, which is
// made if there is none, until ctx ends: rueidis does not look at a context there.
func dedicate(ctx context.Context, client rueidis.Client) (rueidis.DedicatedClient, error) {
	made := make(chan rueidis.DedicatedClient, 1)
	go func() {
		d, _ := client.Dedicate()
		made <- d
	}()
	select {
	case d := <-made:
		return d, nil
	case <-ctx.Done():
		go func() { (<-made).Close() }()
		return nil, ctx.Err()
	}
}

// Close implements redislock.Conn.
func (c *conn) Close() error {
	c.reserve.close()
	return nil
}
