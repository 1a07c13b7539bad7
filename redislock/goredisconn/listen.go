package goredisconn

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/redislock"
)

// Listen implements redislock.Listener, on a connection of its own, which is made by the first Subscribe.
func (c *conn) Listen(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	return &listening{subscriptions: c.client.Subscribe(ctx), heard: heard, lost: make(chan struct{})}, nil
}

// ListenSharded is Listen for sharded channels. The connection is closed when the server says that it has the slot
// of a channel no more.
func (c *conn) ListenSharded(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	return &listening{
		subscriptions: c.client.Subscribe(ctx), heard: heard, lost: make(chan struct{}), sharded: true, leaving: map[string]bool{},
	}, nil
}

// listening is a connection for subscriptions.
type listening struct {
	subscriptions *redis.PubSub
	heard         func(channel, message string)
	lost          chan struct{}
	receives      bool
	sharded       bool

	mu      sync.Mutex
	leaving map[string]bool // sharded channels that are no longer wanted
}

// Subscribe implements redislock.Listening. While go-redis connects, it does not look at its context, but
// at the client's DialTimeout.
func (l *listening) Subscribe(ctx context.Context, channels ...string) error {
	subscribe := l.subscriptions.Subscribe
	if l.sharded {
		subscribe = l.subscriptions.SSubscribe
	}
	if err := subscribe(ctx, channels...); err != nil {
		return failure(err)
	}
	if !l.receives {
		l.receives = true
		go func() {
			defer close(l.lost)
			receive(l.subscriptions, l.received)
		}()
	}
	return nil
}

// received handles what the server sends. It returns false if the connection is of no use any more.
func (l *listening) received(received any) bool {
	switch r := received.(type) {
	case *redis.Message:
		l.heard(r.Channel, r.Payload)
	case *redis.Subscription:
		switch r.Kind {
		case "subscribe", "ssubscribe":
			l.heard(r.Channel, "")
		case "sunsubscribe":
			l.mu.Lock()
			defer l.mu.Unlock()
			wanted := !l.leaving[r.Channel]
			delete(l.leaving, r.Channel)
			return !wanted
		}
	}
	return true
}

// Unsubscribe implements redislock.Listening.
func (l *listening) Unsubscribe(ctx context.Context, channels ...string) error {
	if !l.sharded {
		return failure(l.subscriptions.Unsubscribe(ctx, channels...))
	}
	l.mu.Lock()
	for _, channel := range channels {
		l.leaving[channel] = true
	}
	l.mu.Unlock()
	return failure(l.subscriptions.SUnsubscribe(ctx, channels...))
}

// Lost implements redislock.Listening.
func (l *listening) Lost() <-chan struct{} { return l.lost }

// Close implements redislock.Listening.
func (l *listening) Close() {
	l.subscriptions.Close()
	if l.receives {
		<-l.lost
	}
}
