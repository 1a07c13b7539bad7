package holdfast

import (
	"context"
	"math/rand/v2"
	"time"
)

// firstPause is the first pause after an error of the store.
const firstPause = 5 * time.Millisecond

// jitter returns a duration between half of d and d, so that clients that started together drift
// apart.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// rest waits for d. It returns false if the context ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// endedChannel is the channel of what has ended already, so that nobody waits for it.
var endedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
