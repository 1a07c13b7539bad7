package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
)

// Close ends all leases, has their holds released in batches, and closes the driver. It waits for the store for
// at most engine.ReleaseWithin; then the error is ErrUncertain. Flush is called at the end. A second call waits
// for the first, as long at most, and returns nil.
func (c *Core) Close(flush func()) error {
	cancels, first := c.beginClose()
	if !first {
		select {
		case <-c.done:
		case <-time.After(engine.ReleaseWithin): // not for ever: the call may come from a hook that the first waits for
		}
		return nil
	}
	defer close(c.done)
	cancels.run() // the work ends before the names are free
	c.close(driver.ErrClosed)

	c.mu.Lock()
	quiet := make(chan struct{})
	c.quiet = quiet
	c.stepLocked(&engine.Event{Kind: engine.WorkStopped})
	c.finishLocked(0)
	c.mu.Unlock()
	err := c.awaitQuiet(quiet)
	c.timer.Close()
	c.mu.Lock()
	if c.bound.free != nil {
		c.bound.free()
	}
	c.mu.Unlock()
	if closeErr := c.Driver.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("holdfast: close: %w", closeErr))
	}
	flush()
	return err
}

// beginClose ends all leases and refuses new operations. It returns false if another call has done
// so.
func (c *Core) beginClose() (cancellations, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.closed = true
	c.stepLocked(&engine.Event{Kind: engine.Closed})
	return c.takeCancelsLocked(), true
}

// awaitQuiet waits, for a bounded time, until no operation is under way and the store has confirmed
// every release.
func (c *Core) awaitQuiet(quiet <-chan struct{}) error {
	select {
	case <-quiet:
		return nil
	case <-time.After(engine.ReleaseWithin):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet == nil {
		return nil
	}
	c.quiet = nil
	return fmt.Errorf("holdfast: close: %w: %d operations under way, %d releases unconfirmed",
		driver.ErrUncertain, c.active, c.engine.Unconfirmed())
}
