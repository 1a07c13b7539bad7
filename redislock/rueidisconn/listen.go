package rueidisconn

import (
	"context"
	"sync"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
)

// Listen implements redislock.Listener, on a connection of its own.
func (c *conn) Listen(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	return c.listen(ctx, false, heard)
}

// ListenSharded is Listen for sharded channels. The connection is closed when the server says that it has the slot
// of a channel no more.
func (c *conn) ListenSharded(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	return c.listen(ctx, true, heard)
}

func (c *conn) listen(ctx context.Context, sharded bool, heard func(channel, message string)) (redislock.Listening, error) {
	client, err := dedicate(ctx, c.client)
	if err != nil {
		return nil, err
	}
	l := &listening{client: client, lost: make(chan struct{}), sharded: sharded, leaving: map[string]bool{}}
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { heard(m.Channel, m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			switch {
			case s.Kind == "subscribe" || s.Kind == "ssubscribe":
				heard(s.Channel, "")
			case s.Kind == "sunsubscribe" && !l.left(s.Channel):
				go client.Close()
			}
		},
	})
	go func() {
		for range ended { // closed when the hooks are not called any more
		}
		close(l.lost)
	}()
	return l, nil
}

// listening is a connection for subscriptions.
type listening struct {
	client  rueidis.DedicatedClient
	lost    chan struct{}
	sharded bool

	mu      sync.Mutex
	leaving map[string]bool // sharded channels that are no longer wanted
}

// left reports whether a sharded channel has ended because it is no longer wanted.
func (l *listening) left(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := !l.leaving[channel]
	delete(l.leaving, channel)
	return !wanted
}

// Subscribe implements redislock.Listening.
func (l *listening) Subscribe(ctx context.Context, channels ...string) error {
	subscribe := l.client.B().Subscribe().Channel(channels...).Build()
	if l.sharded {
		subscribe = l.client.B().Ssubscribe().Channel(channels...).Build()
	}
	return failure(l.client.Do(ctx, subscribe).Error())
}

// Unsubscribe implements redislock.Listening.
func (l *listening) Unsubscribe(ctx context.Context, channels ...string) error {
	if !l.sharded {
		return failure(l.client.Do(ctx, l.client.B().Unsubscribe().Channel(channels...).Build()).Error())
	}
	l.mu.Lock()
	for _, channel := range channels {
		l.leaving[channel] = true
	}
	l.mu.Unlock()
	return failure(l.client.Do(ctx, l.client.B().Sunsubscribe().Channel(channels...).Build()).Error())
}

// Lost implements redislock.Listening.
func (l *listening) Lost() <-chan struct{} { return l.lost }

// Close implements redislock.Listening.
func (l *listening) Close() {
	l.client.Close()
	<-l.lost
}
