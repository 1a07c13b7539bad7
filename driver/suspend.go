package driver

import (
	"sync"
	"time"
)

// suspendCounter makes one clock that counts suspension out of two that each
// lack something: the monotonic one stands still while the host sleeps, the
// wall clock can be set. It advances with the monotonic clock and adds every
// step by which the wall clock ran ahead of it; steps back are ignored.
type suspendCounter struct {
	mu    sync.Mutex
	ahead time.Duration // wall minus monotonic, the last time we looked
	added time.Duration // the forward steps so far
}

// suspendStep is the least step that counts. Smaller differences are the wall
// clock being slewed, which would otherwise add up.
const suspendStep = 50 * time.Millisecond

func (c *suspendCounter) now(mono, wall time.Duration) Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step := wall - mono - c.ahead; step >= suspendStep || step <= -suspendStep {
		c.ahead += step
		c.added += max(0, step)
	}
	return Instant(mono + c.added)
}
