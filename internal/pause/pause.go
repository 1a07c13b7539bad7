// Package pause has the pauses between attempts.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and returns true. It returns false as soon as the context has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter returns a duration between half of d and d, so that clients that started together drift apart.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Backoff is a pause that doubles from Min to Max. The zero value of its last field is its beginning.
type Backoff struct {
	Min, Max time.Duration
	last     time.Duration
}

// Next returns the next pause, jittered.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Min), b.Max)
	return Jitter(b.last)
}

// Reset begins again with Min.
func (b *Backoff) Reset() { b.last = 0 }
