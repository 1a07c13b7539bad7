package rueidisconn

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
)

// Database implements redislock.Listener. A client that was wrapped does not tell.
func (c *conn) Database() (int, bool) { return 0, false }

// Database implements redislock.Listener.
func (c *opened) Database() (int, bool) { return c.option.SelectDB, true }

// Listen implements redislock.Listener, on a connection of its own.
func (c *conn) Listen(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	client, err := dedicate(ctx, c.client)
	if err != nil {
		return nil, err
	}
	l := &listening{client: client, lost: make(chan struct{})}
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { heard(m.Channel, m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				heard(s.Channel, "")
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
	client rueidis.DedicatedClient
	lost   chan struct{}
}

// Subscribe implements redislock.Listening.
func (l *listening) Subscribe(ctx context.Context, channels ...string) error {
	return failure(l.client.Do(ctx, l.client.B().Subscribe().Channel(channels...).Build()).Error())
}

// Unsubscribe implements redislock.Listening.
func (l *listening) Unsubscribe(ctx context.Context, channels ...string) error {
	return failure(l.client.Do(ctx, l.client.B().Unsubscribe().Channel(channels...).Build()).Error())
}

// Lost implements redislock.Listening.
func (l *listening) Lost() <-chan struct{} { return l.lost }

// Close implements redislock.Listening.
func (l *listening) Close() {
	l.client.Close()
	<-l.lost
}
