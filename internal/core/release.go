package core

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Release ends the lease, with or without its minimum hold (unused). It waits for the store, or for another
// call of Release, for at most engine.ReleaseWithin, and returns the error of holdfast.Lease.Release.
func (le *Lease) Release(unused bool) error {
	c := le.core
	next := c.endLease(le, unused)
	switch next.Do {
	case engine.AwaitRelease: // by another call
		<-le.signal
		next = c.step(engine.Event{Kind: engine.Released, Caller: &le.caller})
	case engine.GiveBack:
		return c.giveBackOrPanic(le, &next)
	}
	return next.Err
}

// endLease ends the lease. If it is the last one of its hold, the hold is handed over or must be
// given back to the store, after the work under it has ended.
func (c *Core) endLease(le *Lease, unused bool) engine.Action {
	c.mu.Lock()
	next := c.stepLocked(&engine.Event{Kind: engine.Released, Caller: &le.caller, Unused: unused})
	last := next.Do == engine.Stop
	switch {
	case last:
		c.active++
		le.signal = nil
	case next.Do == engine.AwaitRelease && le.signal == nil:
		le.signal = make(chan struct{})
	}
	stopped := engine.Event{Kind: engine.Stopped, Caller: &le.caller, Now: c.engine.Now()}
	if cancels := c.takeCancelsLocked(); cancels != nil {
		c.mu.Unlock()
		cancels.run() // the work under the hold ends
		c.mu.Lock()
		stopped.Now = 0 // that may have taken long
	}
	if last {
		next = c.stepLocked(&stopped)
		if next.Do != engine.GiveBack {
			c.endReleaseLocked(le)
		}
	}
	c.mu.Unlock()
	return next
}

// endReleaseLocked wakes the callers that wait for a release to end.
func (c *Core) endReleaseLocked(le *Lease) {
	if le.signal != nil {
		close(le.signal)
	}
	c.finishLocked(1)
}

// ErrPanicked is the result of a release in which the driver has panicked, for other callers.
var ErrPanicked = errors.New("the driver panicked")

// giveBackOrPanic releases the hold in the store. If the driver panics, other callers are woken,
// and the release goes on in the background.
func (c *Core) giveBackOrPanic(le *Lease, next *engine.Action) (err error) {
	err = ErrPanicked
	defer func() {
		c.mu.Lock()
		err = c.stepLocked(&engine.Event{Kind: engine.GivenBack, Caller: &le.caller, Err: err}).Err
		c.endReleaseLocked(le)
		c.mu.Unlock()
	}()
	ctx, cancel := c.boundRelease(next.For)
	defer cancel()
	err = c.giveBack(ctx, next.Grant)
	return err // the engine turns it into the caller's error
}

// giveBack releases a grant, and repeats it while the context lasts.
func (c *Core) giveBack(ctx context.Context, grant driver.Grant) error {
	err := c.release(ctx, grant)[0]
	again := pause.Backoff{Min: engine.FirstPause, Max: engine.ReleaseWithin}
	for err != nil && !driver.Gone(err) && pause.Sleep(ctx, again.Next()) {
		err = c.release(ctx, grant)[0]
		if errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrBroken) {
			err = nil // an earlier attempt succeeded, and its answer was lost
		}
	}
	return err
}

// bound is a context that several releases share.
type bound struct {
	ctx  context.Context
	made driver.Instant
	free context.CancelFunc
}

// boundRelease returns a context that ends after d at the latest. Releases that begin within a
// moment of one another share one, because making a context costs more than the rest of a release.
func (c *Core) boundRelease(d time.Duration) (context.Context, context.CancelFunc) {
	const moment = engine.ReleaseWithin / 50
	if d < engine.ReleaseWithin {
		return context.WithTimeout(context.Background(), d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.engine.Now(); c.bound.ctx == nil || now.Sub(c.bound.made) > moment {
		// The one before goes on for the releases that use it, and ends by itself.
		ctx, cancel := context.WithTimeout(context.Background(), engine.ReleaseWithin)
		c.bound = bound{ctx, now, cancel}
	}
	return c.bound.ctx, func() {}
}
