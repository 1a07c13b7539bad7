// Package redisson has two things that programs in Java share by Redisson and that are no locks, because
// nobody holds them: the counting [Semaphore], which is Redisson's RSemaphore, and the [Latch], its
// RCountDownLatch. Keys, channels and messages are Redisson's, so programs in Go and in Java take part
// together, on the same names.
//
//	conn, err := redislock.Dial(ctx, u)
//	shared, err := redisson.New(ctx, conn)
//	permits, err := shared.Semaphore("connections")
//	err = permits.Acquire(ctx, 1)           // waits for a permit
//	defer permits.Release(ctx, 1)
//
// Neither has leases: a program that is killed never gives its permits back. A semaphore whose permits end with
// their holder is Client.Semaphore of package holdfast.
//
// Waiters hear of permits and of an open latch by Redisson's channel, and also ask by themselves twice a
// second at most, so a message that was lost delays them by a second. In a cluster, and over a connection that
// redislock.Dial has not made, they only ask, each 50 to 100 ms. They have no order.
//
// A server that fails over forgets what its replicas have not been sent, and nothing here waits for them.
//
// A user needs the commands EVAL, EVALSHA, EXISTS, GET, SET, INCRBY, DECRBY, DECR, DEL, SUBSCRIBE, UNSUBSCRIBE and
// PUBLISH, in a cluster SPUBLISH and PUBSUB|SHARDNUMSUB in place of the last three, for the names N, for {N}:timeout of
// semaphores, and for the channels redisson_sc:* and redisson_countdownlatch__channel__*.
package redisson

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/redislock"
	rules "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// Errors to match with errors.Is. They are those of package holdfast.
var (
	// ErrUncertain: the server has not answered, so the request may or may not have been carried out. It is
	// not sent again, because it would count twice.
	ErrUncertain = driver.ErrUncertain
	// ErrMismatch: the key of that name is something else, a lock for instance, or of a semaphore permits with leases.
	ErrMismatch = driver.ErrMismatch
	// ErrNoSemaphore: nobody has said how many permits there are, or the semaphore was deleted or has expired.
	ErrNoSemaphore = errors.New("there is no semaphore of that name")
	// ErrClosed: the client has been closed.
	ErrClosed = driver.ErrClosed
)

// MaxCount is the most permits, and the highest count of a latch: those of a Java int.
const MaxCount = math.MaxInt32

// requestWithin bounds a request, whatever its context.
const requestWithin = 5 * time.Second

// Client makes semaphores and latches of one connection. While it waits for names, it has one more connection, which
// is subscribed to their channels. Safe for concurrent use.
type Client struct {
	conn    redislock.Conn
	cluster bool
	publish string // the command by which Redisson publishes on this deployment
	ears    *rules.Ears
	life    context.Context
	end     context.CancelFunc

	mu   sync.Mutex
	work sync.WaitGroup // begun under mu, while life has not ended
}

// New returns a client over a connection, which stays the caller's: it is closed after the client. In a
// cluster New asks a server whether it has sharded channels, as Redisson does; else it sends nothing.
func New(ctx context.Context, conn redislock.Conn) (*Client, error) {
	c := &Client{conn: conn, publish: "PUBLISH", ears: rules.NewEars(conn)}
	if _, c.cluster = conn.(redislock.Clustered); c.cluster {
		var err error
		if c.publish, err = rules.PublishInCluster(ctx, conn.Do); err != nil {
			return nil, ctxerr.Of(ctx, err)
		}
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the subscriptions, and waits for requests whose callers have left, for some seconds at most.
// Who waits gets ErrClosed. It does not close the connection, and gives no permits back.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return ErrClosed
	}
	c.end()
	c.mu.Unlock()
	c.ears.Close()
	c.work.Wait()
	return nil
}

// goes runs f in a goroutine that Close waits for. It returns ErrClosed, and does not run it, if the client
// is closed.
func (c *Client) goes(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return ErrClosed
	}
	c.work.Go(f)
	return nil
}

// check returns an error for a name that cannot be used with its channel, and its other keys.
func (c *Client) check(name string, others ...string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if c.cluster {
		return rules.CheckSlots(name, others...)
	}
	return nil
}

// checkCount returns an error for what is no number of permits, and no count of a latch.
func checkCount(n int) error {
	if n < 1 || n > MaxCount {
		return fmt.Errorf("%d: 1 to %d are allowed", n, MaxCount)
	}
	return nil
}

// leftError says that the context of a request ended before its answer came.
type leftError struct{ ended error }

func (e *leftError) Error() string   { return driver.Uncertain(e.ended).Error() }
func (e *leftError) Unwrap() []error { return []error{driver.ErrUncertain, e.ended} }

// withoutEffect returns the error of a request that has no effect, or none any more, if its context ended.
func withoutEffect(err error) error {
	if left := (*leftError)(nil); errors.As(err, &left) {
		return left.ended
	}
	return err
}

// send carries out a request to its end, also when ctx ends sooner. Then it returns a *leftError, and calls
// abandoned, if there is one, with the reply when that has come.
func (c *Client) send(ctx context.Context, request func(context.Context) redislock.Reply, abandoned func(context.Context, redislock.Reply)) (any, error) {
	const (
		underWay = iota
		answered
		left
	)
	var state atomic.Int32
	var reply redislock.Reply
	done := make(chan struct{})
	err := c.goes(func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestWithin)
		defer cancel()
		r := request(own)
		r.Err = ctxerr.Of(own, r.Err)
		reply = r
		defer close(done)
		if !state.CompareAndSwap(underWay, answered) && abandoned != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestWithin)
			defer cancel()
			abandoned(after, r)
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		if state.CompareAndSwap(underWay, left) {
			return nil, &leftError{ctx.Err()}
		}
		<-done // at once
	}
	return reply.Value, explain(reply.Err)
}

// explain returns the error of a reply as the package's callers know it.
func explain(err error) error {
	refused := (*redislock.ServerError)(nil)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		return driver.Uncertain(err)
	case refused.Code() == "WRONGTYPE":
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return redislock.Explain(err)
}

// failed says in which operation on which name err happened.
func failed(operation, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisson: %s %q: %w", operation, name, err)
}

// count returns a reply that is a number.
func count(value any) (int, error) {
	n, ok := value.(int64)
	if !ok || n < math.MinInt32 || n > MaxCount {
		return 0, fmt.Errorf("redis answered %.100q, which is no reply of the script", fmt.Sprint(value))
	}
	return int(n), nil
}
