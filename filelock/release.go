//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Release implements driver.Driver.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	out := make([]error, len(grants))
	for i := range grants {
		out[i] = c.release(ctx, &grants[i])
	}
	return out
}

// release ends the hold, or withdraws the place, and grants the name to the next waiter in the same
// step.
func (c *client) release(ctx context.Context, g *driver.Grant) error {
	held := false // in any run of the operation: the one that took the hold away may not be the last
	err := c.do(ctx, g.Name, func(t *operation) error {
		if t.Release(g.Owner, g.MinHold, g.Token, t.now, &t.rules) {
			held = true
		}
		t.settle()
		c.contend(g.Name, len(t.wake) > 0)
		if g.Token == 0 || g.Stray {
			t.stripe.withdrawn.Put(g.Owner, driver.ErrNotHeld, t.now, t.now.Add(withdrawnFor)) // P6
		}
		if held || g.Token == 0 {
			return nil
		}
		return t.lost(g.Owner)
	})
	if err == nil {
		c.unsubscribe(g.Owner)
	}
	if held && g.Token != 0 {
		c.taken.Add(-1)
	}
	return err
}

// withdrawnFor is how long a withdrawn request is remembered: it can only be under way within this
// process, and for no longer (P6).
const withdrawnFor = time.Minute

// Close implements driver.Driver. What is still held counts as vanished.
func (c *client) Close() error {
	c.busy.Lock()
	select {
	case <-c.closed:
		c.busy.Unlock()
		return driver.ErrClosed
	default:
		close(c.closed)
	}
	c.busy.Unlock() // whoever comes now finds it closed
	if c.attached.Load() {
		c.cleaning.Wait()
		// The file that stays behind is that of a dead client, and makes the next one clean what
		// this one could not.
		clean := c.cleanAll() && c.taken.Load() == 0
		c.mu.Lock()
		clean = clean && len(c.waiters) == 0
		c.mu.Unlock()
		c.life.end(clean)
		local.Delete(c.id)
	}
	c.store.unref()
	return nil
}
