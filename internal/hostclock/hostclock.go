// Package hostclock reads a clock of this host that nobody can set and that counts the time for which the
// host was suspended.
//
// On Linux it is CLOCK_BOOTTIME, read by a system call. Package time reads CLOCK_MONOTONIC, which
// stands still while the host is suspended: a lease would seem valid after a night with the lid
// closed. On other systems it is the monotonic clock plus every forward step that the wall clock
// makes beyond it. That counts suspension too, and errs on the safe side: setting the wall clock
// forward looks like a suspension and ends leases early.
package hostclock

import (
	"sync"
	"time"
)

// suspendCounter makes one clock that counts suspension out of two: the monotonic clock, which
// stands still while the host sleeps, and the wall clock, which can be set. It advances with the
// monotonic clock and adds every step by which the wall clock ran ahead of it. It ignores steps
// back.
type suspendCounter struct {
	mu    sync.Mutex
	ahead time.Duration // wall minus monotonic at the last reading
	added time.Duration // the forward steps so far
}

// suspendStep is the least step that counts. Smaller differences come from slewing the wall clock,
// and would add up.
const suspendStep = 50 * time.Millisecond

func (c *suspendCounter) now(mono, wall time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step := wall - mono - c.ahead; step >= suspendStep || step <= -suspendStep {
		c.ahead += step
		c.added += max(0, step)
	}
	return mono + c.added
}
