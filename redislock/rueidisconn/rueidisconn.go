// Package rueidisconn lets package redislock speak through the client library rueidis, for programs that have
// such a client already:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ForceSingleClient: true})
//	...
//	d, err := redislock.New(ctx, rueidisconn.Wrap(client), nil)
//	...
//	locks, err := holdfast.New(d, nil)
//
// Opened by a URL, package redislock uses a client of its own, which is faster for a single caller, keeps a
// connection for renewals, and knows sentinels and clusters.
package rueidisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Wrap returns a redislock.Conn over a client of a single node. The caller closes the client, after the driver.
// A client of a cluster or of sentinels is refused by redislock.New: there are URLs for both.
//
// Its ClientOption.ConnLifetime must be 0. Else, when a connection ends by its lifetime and the server
// has not replied for a second, rueidis sends the requests that were under way a second time, whatever
// DisableRetry says. A request that takes effect twice may leave a hold behind, until its TTL ends (P6).
//
// All requests share the client's pipeline with the rest of the program: a lease that cannot be renewed in time
// is lost, as its holder is told (P2). The news of grants needs one connection of the client's pool for blocking
// commands (ClientOption.BlockingPoolSize).
func Wrap(client rueidis.Client) redislock.Conn { return &conn{client} }

type conn struct{ client rueidis.Client }

var errDeployment = errors.New("the client of rueidis is not of a single node: open redis+cluster:// or redis+sentinel:// instead")

// Do implements redislock.Conn. Rueidis does not send an arbitrary command a second time, as long as
// connections have no lifetime: see Wrap. It does not look at a request's context while a connection is made,
// by this or another request, and while the request waits for a place in a pipeline that is full. So the
// request goes by a goroutine of its own (P11).
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	if c.client.Mode() != rueidis.ClientModeStandalone {
		return wire.Failed(len(commands), errDeployment)
	}
	built := make([]rueidis.Completed, len(commands)) // the caller may change its own after the return
	for i := range commands {
		args := commands[i].Args
		built[i] = c.client.B().Arbitrary(args[0]).Args(args[1:]...).Build()
	}
	if ctx.Done() == nil {
		return c.send(ctx, built)
	}
	answered := make(chan []redislock.Reply, 1)
	go func() { answered <- c.patiently(ctx, built) }()
	select {
	case replies := <-answered:
		return replies
	case <-ctx.Done():
		return wire.Failed(len(commands), ctx.Err())
	}
}

// connecting bounds for how long a request is sent again that was not sent.
const connecting = 5 * time.Second

// patiently sends commands. If another request makes the connection for all, and its context ends, rueidis
// returns that error to all requests that wait for the connection. None of them was sent, so patiently sends
// these again.
func (c *conn) patiently(ctx context.Context, built []rueidis.Completed) []redislock.Reply {
	for i := range built {
		built[i] = built[i].Pin() // for the next time
	}
	for began := time.Now(); ; {
		replies := c.send(cancelOnly{ctx}, built)
		err := replies[0].Err
		others := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !others || ctx.Err() != nil || time.Since(began) >= connecting {
			return replies
		}
	}
}

// send sends commands in one go.
func (c *conn) send(ctx context.Context, built []rueidis.Completed) []redislock.Reply {
	replies := make([]redislock.Reply, len(built))
	for i, result := range c.client.DoMulti(ctx, built...) {
		value, err := result.ToAny()
		if !rueidis.IsRedisNil(err) {
			replies[i] = redislock.Reply{Value: value, Err: failure(err)}
		}
	}
	return replies
}

// cancelOnly hides the deadline of a context, but not its end. Where rueidis does not pipeline yet, it
// makes the deadline one of the connection; when that passes, it closes the connection under the
// requests of others (P2, P6).
type cancelOnly struct{ context.Context }

func (cancelOnly) Deadline() (time.Time, bool) { return time.Time{}, false }

// failure makes a server's error a ServerError.
func failure(err error) error {
	if refused, ok := rueidis.IsRedisErr(err); ok {
		return &redislock.ServerError{Text: refused.Error()}
	}
	return err
}

// Subscribe implements redislock.Conn, on a connection of the client's pool.
func (c *conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.session(ctx, channel, deliver)
	}, deliver)
}

// session subscribes once.
func (c *conn) session(ctx context.Context, channel string, deliver func(string)) (subscription.Session, error) {
	client, err := c.dedicate(ctx)
	if err != nil {
		return subscription.Session{}, err
	}
	confirmed := make(chan struct{}, 1)
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { deliver(m.Message) },
		OnSubscription: func(rueidis.PubSubSubscription) {
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
	return subscription.Session{}, failure(err)
}

// dedicate takes a connection of the client's pool for blocking commands. If there is none, rueidis
// makes one, and looks at no context meanwhile; dedicate returns when ctx ends.
func (c *conn) dedicate(ctx context.Context) (rueidis.DedicatedClient, error) {
	made := make(chan rueidis.DedicatedClient, 1)
	go func() {
		d, _ := c.client.Dedicate()
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
func (c *conn) Close() error { return nil }
