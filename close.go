package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/internal/engine"
)

// Close closes the client: waiting acquires return ErrClosed, leases end (ErrReleased) and are
// released in batches, and the driver is closed.
//
// It waits at most about 5 s for the store. If the store has not confirmed every release by then,
// the error is ErrUncertain, and what is left ends with its TTL. Then it waits, for at most 1 s,
// until the hooks and the Logger have been told everything. A second call waits for the first, for
// at most 5 s, and returns nil.
func (c *Client) Close() error {
	cancels, first := c.beginClose()
	if !first {
		// Not for ever: the call may come from a hook that the first call waits for.
		ctx, cancel := context.WithTimeout(context.Background(), engine.ReleaseWithin)
		defer cancel()
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		return nil
	}
	defer close(c.done)
	cancels.run() // the work ends before the names are free
	c.close(ErrClosed)

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
	if closeErr := c.driver.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("holdfast: close: %w", closeErr))
	}
	hooks := time.NewTimer(hooksWithin)
	defer hooks.Stop()
	select {
	case <-c.events.drained():
	case <-hooks.C:
	}
	return err
}

// beginClose ends all leases and refuses new operations. It returns false if another call has done
// so.
func (c *Client) beginClose() (cancellations, bool) {
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
func (c *Client) awaitQuiet(quiet <-chan struct{}) error {
	timer := time.NewTimer(engine.ReleaseWithin)
	defer timer.Stop()
	select {
	case <-quiet:
		return nil
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet == nil {
		return nil
	}
	c.quiet = nil
	return fmt.Errorf("holdfast: close: %w: %d operations under way, %d releases unconfirmed",
		ErrUncertain, c.active, c.engine.Unconfirmed())
}
