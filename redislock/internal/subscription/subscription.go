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
			if session.Close(); alive.Err() != nil {
				return
			}
			next := pause.Backoff{Min: firstPause, Max: longestPause}
			again, err := subscribe(alive)
			for ; err != nil; again, err = subscribe(alive) {
				if !pause.Sleep(alive, next.Next()) {
					return
				}
			}
			session = again
			deliver("")
		}
	})
	return func() { cancel(); done.Wait() }, nil
}
