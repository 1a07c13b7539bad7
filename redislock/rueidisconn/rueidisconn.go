// Package rueidisconn lets package redislock speak through the client library
// rueidis, and registers these URL schemes:
//
//	redis://user:password@host:6379/0
//	redis+unix://user:password@/run/redis/redis.sock?hf.db=0
//	redis+sentinel://user:password@host:26379,host:26379,host:26379/primary/0
//	redis+cluster://user:password@host:6379,host:6379,host:6379
//
// and with TLS rediss, rediss+sentinel and rediss+cluster. Behind redis+sentinel are the hosts of the
// sentinels, and the name by which they know the primary; user and password are those of the servers,
// and of the sentinels if they want one. Behind redis+cluster are some servers of the cluster.
//
// The database is 0 if none is given, the port 6379. These parameters are of
// redislock.Options:
//
//	hf.wait=push     the server tells waiters of their grants; hf.wait=spin: they poll
//	hf.layout=setnx  one string for each lock, as programs in all languages write it
//	hf.layout=redisson  locks that Go and Java share, on the keys of Redisson; a mutex is an RLock, or
//	                    with hf.redisson=fair, fenced or spin an RFairLock, RFencedLock or RSpinLock
//	hf.replicas=N    a grant or a renewal counts when N replicas have acknowledged it
//
// Keys and channels begin with redislock.DefaultPrefix; a program that wants
// another prefix there wraps a client, see [Wrap] and redislock.Options. The
// parameters hf.prefix, a prefix of names, and hf.ttl are package holdfast's, for every store.
//
// and with TLS, where the server proves its name by a certificate that the
// system trusts:
//
//	hf.ca=FILE               trust these authorities instead, in PEM form
//	hf.cert=FILE&hf.key=FILE show this certificate, with this key, to the server
//
// The files are read again for each connection.
//
// A client opened by URL has four connections: one for requests; one for renewals and releases; one for the
// news of grants (in the layout setnx for keyspace notifications, while anybody waits); and one of rueidis'
// that pipelines, which serves while the first two are being made. In a cluster it has three to each
// master, one more, and one to each master for whose names it has waited. On the first two callers write
// and read in their own goroutines: a caller that is alone there waits for nobody else in the process, and
// many callers share their writes and reads.
package rueidisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// Wrap returns a redislock.Conn over a client. The caller closes the client, after the driver. All
// requests are pipelined, so a single caller is slower than with a client opened by URL.
//
// The client must be of a single node. redislock.New refuses one of a cluster, and one with sentinels
// may renew at a primary that is none any more: for both there are URLs.
//
// Its ClientOption.ConnLifetime must be 0. Else, when a connection ends by its lifetime and the server
// has not replied for a second, rueidis sends the requests that were under way a second time, whatever
// DisableRetry says. A request that takes effect twice may leave a hold behind, until its TTL ends (P6).
//
// Acquires share the client's pipeline with the rest of the program. The news of grants needs one
// connection of the client's pool for blocking commands (ClientOption.BlockingPoolSize), and renewals
// and releases another. While the program uses up that pool, renewals go by the shared pipeline too.
// They do so always if the server speaks RESP2 only, before Redis 6.
func Wrap(client rueidis.Client) redislock.Conn {
	return &conn{client: client, reserve: reserve{client: client}}
}

type conn struct {
	client  rueidis.Client
	reserve reserve
}

// Deployment implements redislock.Deployed.
func (c *conn) Deployment() redislock.Deployment {
	switch c.client.Mode() {
	case rueidis.ClientModeCluster:
		return redislock.Cluster
	case rueidis.ClientModeSentinel:
		return redislock.Sentinel
	}
	return redislock.Single
}

// Do implements redislock.Conn. Rueidis does not send an arbitrary command a second time, as long as
// connections have no lifetime: see Wrap.
func (c *conn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	return aside(ctx, c.client, commands)
}

// sender is a client of rueidis, or one of its connections.
type sender interface {
	B() rueidis.Builder
	Do(context.Context, rueidis.Completed) rueidis.RedisResult
	DoMulti(context.Context, ...rueidis.Completed) []rueidis.RedisResult
}

// aside sends commands in a goroutine of their own, and waits for the replies until ctx ends (P11). In
// rueidis a request does not look at its context while a connection is made, by it or by another
// request, and while it waits for a place in a pipeline that is full.
func aside(ctx context.Context, to sender, commands []redislock.Command) []redislock.Reply {
	if ctx.Done() == nil {
		return send(ctx, to, build(to, commands))
	}
	built := build(to, commands) // the caller may change the commands after the return
	answered := make(chan []redislock.Reply, 1)
	go func() { answered <- patiently(ctx, to, built) }()
	select {
	case replies := <-answered:
		return replies
	case <-ctx.Done():
		return failed(len(commands), ctx.Err())
	}
}

// patiently sends commands. Suppose another request makes the connection for all, and its context
// ends: then rueidis returns that error to all requests that wait for the connection. None of them
// was sent, so patiently sends these again.
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

// failed is n replies with an error.
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

// cancelOnly hides the deadline of a context, but not its end. Where rueidis does not pipeline yet, it
// makes the deadline one of the connection; when that passes, it closes the connection under the
// requests of others (P2, P6).
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
func (c *conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		return c.Session(ctx, channel, false, deliver)
	}, deliver)
}

// Session subscribes once.
func (c *conn) Session(ctx context.Context, channel string, sharded bool, deliver func(string)) (subscription.Session, error) {
	client, err := dedicate(ctx, c.client)
	if err != nil {
		return subscription.Session{}, err
	}
	subscribe := client.B().Subscribe().Channel(channel).Build()
	if sharded {
		subscribe = client.B().Ssubscribe().Channel(channel).Build()
	}
	confirmed := make(chan struct{}, 1)
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { deliver(m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" { // by the server: it has the channel's slot no more
				go client.Close()
				return
			}
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
	if err = client.Do(ctx, subscribe).Error(); err == nil {
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

// dedicate takes a connection of the client's pool for blocking commands. If there is none, rueidis
// makes one, and looks at no context meanwhile; dedicate returns when ctx ends.
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
