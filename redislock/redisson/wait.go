package redisson

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
)

// The longest pauses between two questions of a waiter, where the server tells of permits and latches, and where it
// does not. Each pause is jittered down to half.
const (
	longestTold   = time.Second
	longestUntold = 100 * time.Millisecond
)

// await tries, whenever the channel tells that it is worth it and once in a poll, until that succeeds or
// fails, or ctx ends. Permits is how many are wanted; 0: of a latch.
func (c *Client) await(ctx context.Context, channel string, permits int, try func() (bool, error)) error {
	w := c.ears.Await(permits, channel)
	defer w.Stop()
	longest := longestTold
	if w == nil {
		longest = longestUntold
	}
	for {
		timer := time.NewTimer(pause.Jitter(longest))
		lost := false
		select {
		case <-w.C():
			lost = !w.Sure() // the connection, so that a question is likely to fail, too
		case <-timer.C:
		case <-ctx.Done():
		case <-c.life.Done():
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.life.Err() != nil:
			return ErrClosed
		case lost:
			continue
		}
		if ok, err := try(); ok || err != nil {
			return err
		}
	}
}
