package goredisconn

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/redislock"
)

// reserve sends renewals and releases over at most two connections of their own. Requests that come
// while both are in use are sent together, when one of them is free. So a renewal does not wait for
// more than two of them, and two more for each thousand releases that were queued before it.
type reserve struct {
	client *redis.Client
	mu     sync.Mutex
	queue  []*parcel
	busy   int // senders
	closed bool
}

// There are two senders so that one goes on if the other's connection has fallen silent. maxParcel
// bounds what is sent at once, so that the server is not held up.
const (
	maxSenders = 2
	maxParcel  = 1000
)

// A connection that has fallen silent is replaced within these, whatever time-outs the program's
// client has.
const (
	reserveTimeout = 3 * time.Second
	dialTimeout    = 5 * time.Second
)

// parcel is one call's commands.
type parcel struct {
	ctx     context.Context
	built   []command
	replies chan []redislock.Reply // one value
}

// newReserve makes a client for the connections, with the options of the program's client except for
// hooks and options of large pools or of cached data. It connects when there is something to send.
func newReserve(program *redis.Client) *reserve {
	o := *program.Options()
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns, o.PipelinePoolSize = maxSenders, 0, 0, -1
	o.DialerRetries, o.DialTimeout = 1, within(o.DialTimeout, dialTimeout)
	o.ReadTimeout = within(o.ReadTimeout, reserveTimeout)
	o.WriteTimeout = within(o.WriteTimeout, reserveTimeout)
	o.Limiter, o.PushNotificationProcessor, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil, nil
	return &reserve{client: redis.NewClient(&o)}
}

// within returns d, or most where d is longer or no time at all.
func within(d, most time.Duration) time.Duration {
	if d <= 0 {
		return most
	}
	return min(d, most)
}

// do is Conn.Do for renewals and releases.
func (r *reserve) do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	p := &parcel{ctx: ctx, replies: make(chan []redislock.Reply, 1)}
	for i := range commands {
		p.built = append(p.built, newCommand(context.Background(), &commands[i]))
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return failed(len(commands), redis.ErrClosed)
	}
	r.queue = append(r.queue, p)
	if r.busy < maxSenders {
		r.busy++
		go r.send()
	}
	r.mu.Unlock()
	select {
	case replies := <-p.replies:
		return replies
	case <-ctx.Done():
		return failed(len(commands), ctx.Err())
	}
}

// send sends what is queued until there is nothing left.
func (r *reserve) send() {
	for {
		r.mu.Lock()
		var parcels []*parcel
		var built []command
		for len(r.queue) > 0 && len(built) < maxParcel {
			p := r.queue[0]
			r.queue[0], r.queue = nil, r.queue[1:]
			if p.ctx.Err() == nil { // else nobody waits for it any more
				parcels, built = append(parcels, p), append(built, p.built...)
			}
		}
		if len(built) == 0 {
			r.busy--
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		replies := exchange(context.Background(), r.client, built)
		for _, p := range parcels {
			n := len(p.built)
			p.replies <- replies[:n:n]
			replies = replies[n:]
		}
	}
}

func (r *reserve) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.client.Close()
}
