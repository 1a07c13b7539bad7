package goredisconn

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/redislock"
)

// Database implements redislock.Listener.
func (c *conn) Database() (int, bool) { return c.client.Options().DB, true }

// Listen implements redislock.Listener, on a connection of its own, which is made by the first Subscribe.
func (c *conn) Listen(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	return &listening{subscriptions: c.client.Subscribe(ctx), heard: heard, lost: make(chan struct{})}, nil
}

// listening is a connection for subscriptions.
type listening struct {
	subscriptions *redis.PubSub
	heard         func(channel, message string)
	lost          chan struct{}
	receives      bool
}

// Subscribe implements redislock.Listening. While go-redis connects, it does not look at its context, but
// at the client's DialTimeout.
func (l *listening) Subscribe(ctx context.Context, channels ...string) error {
	if err := l.subscriptions.Subscribe(ctx, channels...); err != nil {
		return failure(err)
	}
	if !l.receives {
		l.receives = true
		go func() {
			defer close(l.lost)
			receive(l.subscriptions, func(received any) bool {
				switch r := received.(type) {
				case *redis.Message:
					l.heard(r.Channel, r.Payload)
				case *redis.Subscription:
					if r.Kind == "subscribe" {
						l.heard(r.Channel, "")
					}
				}
				return true
			})
		}()
	}
	return nil
}

// Unsubscribe implements redislock.Listening.
func (l *listening) Unsubscribe(ctx context.Context, channels ...string) error {
	return failure(l.subscriptions.Unsubscribe(ctx, channels...))
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
