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
// A client opened by URL has two connections: one that pipelines requests, and one
// that hears of hand-offs.
package rueidisconn

import (
	"context"
	"errors"
	"sync/atomic"
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
func Wrap(client rueidis.Client) redislock.Conn { return &conn{client: client} }

type conn struct {
	client rueidis.Client
	own    bool         // not the caller's
	proved atomic.Int64 // when the server answered last, after start; 0: the last request was not answered
}

// Do implements redislock.Conn. An arbitrary command is none of those that
// rueidis sends again, as long as connections have no lifetime: see Wrap.
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	if ctx.Done() == nil || c.proven() {
		replies := send(cancelOnly{ctx}, c.client, commands)
		c.prove(replies)
		return replies
	}
	return c.sendAside(ctx, commands)
}

// provenFor is for how long after an answer the connection is taken to be there.
const provenFor = 100 * time.Millisecond

var start = time.Now()

func (c *conn) proven() bool {
	at := c.proved.Load()
	return at != 0 && time.Since(start)-time.Duration(at) < provenFor
}

// prove takes in whether the server has answered.
func (c *conn) prove(replies []redislock.Reply) {
	for i := range replies {
		if err := replies[i].Err; err != nil && !isRefusal(err) {
			c.proved.Store(0)
			return
		}
	}
	now, before := int64(time.Since(start)), c.proved.Load()
	if now-before > int64(provenFor/8) {
		c.proved.Store(now)
	}
}

// sendAside is send for a connection that may have to be made anew. Whoever needs
// one first makes it, and rueidis lets all others wait for that, whatever their
// contexts say: so the caller does not wait there itself.
func (c *conn) sendAside(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	answered := make(chan []redislock.Reply, 1)
	go func() {
		replies := send(cancelOnly{ctx}, c.client, commands)
		c.prove(replies)
		answered <- replies
	}()
	select {
	case replies := <-answered:
		return replies
	case <-ctx.Done():
	}
	replies := make([]redislock.Reply, len(commands))
	for i := range replies {
		replies[i].Err = ctx.Err()
	}
	return replies
}

// send sends commands in one go.
func send(ctx context.Context, client rueidis.Client, commands []redislock.Command) []redislock.Reply {
	replies := make([]redislock.Reply, len(commands))
	if len(commands) == 1 {
		replies[0] = reply(client.Do(ctx, build(client, &commands[0])))
		return replies
	}
	built := make([]rueidis.Completed, len(commands))
	for i := range commands {
		built[i] = build(client, &commands[i])
	}
	for i, result := range client.DoMulti(ctx, built...) {
		replies[i] = reply(result)
	}
	return replies
}

// cancelOnly is a context whose deadline shows only as its end. Rueidis, where it
// does not pipeline yet, makes a deadline that it sees one of the connection, and
// gives that up with all that others have under way there (P2, P6).
type cancelOnly struct{ context.Context }

func (cancelOnly) Deadline() (time.Time, bool) { return time.Time{}, false }

func build(client rueidis.Client, cmd *redislock.Command) rueidis.Completed {
	return client.B().Arbitrary(cmd.Args[0]).Args(cmd.Args[1:]...).Build()
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

// isRefusal reports whether an error is the server's answer.
func isRefusal(err error) bool {
	_, ok := err.(*redislock.ServerError)
	return ok
}

// Subscribe implements redislock.Conn, on a connection of its own.
func (c *conn) Subscribe(ctx context.Context, channel string, hear func(string)) (func(), error) {
	return subscription.Keep(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.subscribe(ctx, channel, hear)
	}, hear)
}

// subscribe subscribes once.
func (c *conn) subscribe(ctx context.Context, channel string, hear func(string)) (subscription.Session, error) {
	client, _ := c.client.Dedicate()
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
	err := client.Do(ctx, client.B().Subscribe().Channel(channel).Build()).Error()
	if err == nil {
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

// Close implements redislock.Conn.
func (c *conn) Close() error {
	if c.own {
		c.client.Close()
	}
	return nil
}
