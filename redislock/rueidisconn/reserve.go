package rueidisconn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
)

// reserve has a connection for renewals and releases, which is made again when it is lost. While there
// is none, they go by the same way as other requests.
type reserve struct {
	client rueidis.Client
	now    atomic.Pointer[link]
	stop   context.CancelFunc // nil: not begun
	work   sync.WaitGroup
}

// link is one such connection.
type link struct {
	rueidis.DedicatedClient
	lost       <-chan struct{}
	unanswered atomic.Int32 // requests given up since the last reply
}

// A connection is closed when a request has waited in vain for silentFor, or maxUnanswered requests
// have for less, one after the other.
const (
	silentFor      = time.Second
	maxUnanswered  = 3
	firstPause     = 10 * time.Millisecond // between attempts to connect; doubles
	longestPause   = time.Second
	helloCommand   = "HELLO"
	wantedProtocol = 3
)

// Reserve implements redislock.Reserver.
func (c *conn) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	alive, stop := context.WithCancel(context.Background())
	c.reserve.stop = stop
	c.reserve.work.Go(func() { c.reserve.maintain(alive) })
	return func(ctx context.Context, commands []redislock.Command) []redislock.Reply {
		if k := c.reserve.now.Load(); k != nil {
			return c.reserve.do(ctx, k, commands)
		}
		return c.Do(ctx, commands)
	}
}

func (r *reserve) do(ctx context.Context, k *link, commands []redislock.Command) []redislock.Reply {
	sent := time.Now()
	replies := aside(ctx, k, commands)
	switch err := replies[0].Err; {
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		k.unanswered.Store(0)
	case time.Since(sent) >= silentFor || k.unanswered.Add(1) >= maxUnanswered:
		// The server may reply on other connections all the same.
		if r.now.CompareAndSwap(k, nil) {
			go k.Close()
		}
	}
	return replies
}

// maintain makes the connection, again and again, until alive ends.
func (r *reserve) maintain(alive context.Context) {
	for pause := firstPause; alive.Err() == nil; pause = min(2*pause, longestPause) {
		k, err := r.connect(alive)
		if errors.Is(err, errOldProtocol) {
			return
		}
		if err == nil {
			pause = firstPause
			r.now.Store(k)
			select {
			case <-k.lost:
			case <-alive.Done():
			}
			if r.now.CompareAndSwap(k, nil) {
				k.Close()
			}
		}
		select {
		case <-time.After(pause):
		case <-alive.Done():
		}
	}
}

// errOldProtocol says that rueidis does not tell when a connection is lost.
var errOldProtocol = errors.New("the server does not speak RESP3")

func (r *reserve) connect(ctx context.Context) (*link, error) {
	client, err := dedicate(ctx, r.client)
	if err != nil {
		return nil, err
	}
	hello, err := client.Do(ctx, client.B().Arbitrary(helloCommand).Build()).AsMap()
	if err == nil {
		proto := hello["proto"]
		if version, _ := proto.AsInt64(); version < wantedProtocol {
			err = errOldProtocol
		}
	}
	if _, refused := rueidis.IsRedisErr(err); refused {
		err = errOldProtocol
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	// Rueidis tells by the hooks of a subscription that a connection is lost.
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	lost := make(chan struct{})
	go func() {
		for range ended {
		}
		close(lost)
	}()
	return &link{DedicatedClient: client, lost: lost}, nil
}

// close ends the connection.
func (r *reserve) close() {
	if r.stop != nil {
		r.stop()
		r.work.Wait()
	}
}
