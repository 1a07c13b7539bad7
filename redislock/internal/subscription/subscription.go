// Package subscription keeps a subscription to a channel alive.
package subscription

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
)

// Session is one subscription, for as long as its connection lasts.
type Session struct {
	Lost  <-chan struct{} // closed when the connection is lost
	Close func()          // ends the session; when it has returned, no more messages are delivered
}

// The pauses between attempts to subscribe again double from the first to the
// longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// Maintain subscribes, and returns when the first session is there, or the error of that attempt.
// Whenever the session is lost it subscribes again, and then calls deliver with "", until stop is
// called. Subscribe returns when the server has confirmed.
func Maintain(
	ctx context.Context, subscribe func(context.Context) (Session, error), deliver func(string),
) (stop func(), err error) {
	session, err := subscribe(ctx)
	if err != nil {
		return nil, err
	}
	alive, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-session.Lost:
			case <-alive.Done():
			}
			session.Close()
			if session, err = again(alive, subscribe); err != nil {
				return
			}
			deliver("")
		}
	})
	return func() { cancel(); done.Wait() }, nil
}

// again subscribes until it succeeds or ctx ends.
func again(ctx context.Context, subscribe func(context.Context) (Session, error)) (Session, error) {
	next := pause.Backoff{Min: firstPause, Max: longestPause}
	for ctx.Err() == nil {
		if session, err := subscribe(ctx); err == nil {
			return session, nil
		}
		pause.Sleep(ctx, next.Next())
	}
	return Session{}, ctx.Err()
}
