package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Release releases the lease. The name is free once the last lease of the hold is released or, with
// Options.MinHold, once that time is over too (but see ReleaseNow).
//
// It takes no context, because it must work in a defer after the caller's context has ended. It
// waits for the store as long as the lease would have been valid, at most 5 s. If the store has not
// confirmed the release by then, the error is ErrUncertain and the release goes on in the
// background. If the lease was lost before, the error is the *LostError: the work under it may have
// run unprotected. A second call does nothing but wait for the first and return its result.
func (le *Lease) Release() error { return le.release(false) }

// ReleaseNow releases the lease without the minimum hold (Options.MinHold). Use it if the work
// could not begin and nothing was done under the lease, so that another may do it at once. If
// several leases share a hold, the minimum holds unless all of them are released by ReleaseNow. A
// second call, of either, does nothing but wait for the first and return its result.
func (le *Lease) ReleaseNow() error { return le.release(true) }

// release is Release, or, with unused, ReleaseNow.
func (le *Lease) release(unused bool) error {
	c := le.client
	next := c.endLease(le, unused)
	switch next.Do {
	case engine.Wait: // for another call of Release
		<-le.signal
		next = c.step(engine.Event{Kind: engine.Released, Caller: &le.caller})
	case engine.GiveBack:
		return c.giveBackOrPanic(le, &next)
	}
	return next.Err
}

// endLease ends the lease. If it is the last one of its hold, the hold is handed over or must be
// given back to the store, after the work under it has ended.
func (c *Client) endLease(le *Lease, unused bool) engine.Action {
	c.mu.Lock()
	next := c.stepLocked(&engine.Event{Kind: engine.Released, Caller: &le.caller, Unused: unused})
	last := next.Do == engine.Stop
	switch {
	case last:
		c.active++
		le.signal = nil
	case next.Do == engine.Wait && le.signal == nil:
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
func (c *Client) endReleaseLocked(le *Lease) {
	if le.signal != nil {
		close(le.signal)
	}
	c.finishLocked(1)
}

// errPanicked is the result of a release in which the driver has panicked, for other callers.
var errPanicked = errors.New("the driver panicked")

// giveBackOrPanic releases the hold in the store. If the driver panics, other callers are woken,
// and the release goes on in the background.
func (c *Client) giveBackOrPanic(le *Lease, next *engine.Action) (err error) {
	err = errPanicked
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
func (c *Client) giveBack(ctx context.Context, grant driver.Grant) error {
	err := c.release1(ctx, grant)
	for pause := firstPause; err != nil && !driver.Gone(err) && rest(ctx, jitter(pause)); pause *= 2 {
		err = c.release1(ctx, grant)
		if errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrBroken) {
			err = nil // an earlier attempt succeeded, and its answer was lost
		}
	}
	return err
}

// release1 releases one grant.
func (c *Client) release1(ctx context.Context, g driver.Grant) error {
	errs := c.driver.Release(ctx, []driver.Grant{g})
	if len(errs) != 1 {
		return fmt.Errorf("the driver returned %d results for one release", len(errs))
	}
	return errs[0]
}

// bound is a context that several releases share.
type bound struct {
	ctx  context.Context
	made driver.Instant
	free context.CancelFunc
}

// boundRelease returns a context that ends after d at the latest. Releases that begin within a
// moment of one another share one, because making a context costs more than the rest of a release.
func (c *Client) boundRelease(d time.Duration) (context.Context, context.CancelFunc) {
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
