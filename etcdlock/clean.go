package etcdlock

import (
	"math"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// sweep deletes the keys whose time is over. The timer calls it. It visits all records, and not often: a hold is
// renewed, and a place confirmed, long before its time is over, so the first that may be over the next time is far
// away, as a rule. A queue of them by their times would take a third of a record's memory.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	var late []*record
	next := driver.Instant(math.MaxInt64)
	for r := range c.records.all() {
		switch {
		case r.until == 0:
		case r.until > now:
			next = min(next, r.until)
		case r.asks > 0: // what is under way may be its sign of life
			next = min(next, now.Add(removePause))
		default:
			r.state, r.until = leaving, 0
			r.wakeLocked()
			late = append(late, r)
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
	if late != nil && !c.isClosed {
		c.background.Go(func() { c.remove(late) })
	}
}

// remove deletes keys. Only when the store has confirmed that, or their leases have ended, they are used again.
func (c *client) remove(records []*record) {
	grants, errs, all := make([]driver.Grant, len(records)), make([]error, len(records)), make([]int, len(records))
	for i, r := range records {
		all[i] = i
		grants[i] = driver.Grant{Request: driver.Request{Name: r.name, Owner: r.owner}, Token: max(c.layout.Token(r.created), 1)}
	}
	ctx, cancel := c.bounded(c.life)
	c.deleteKeys(ctx, grants, all, errs)
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range records {
		s := r.session.Load()
		switch {
		case errs[i] == nil || driver.Gone(errs[i]):
			c.forgetLocked(r)
		case s != nil && !s.over && !s.ended():
			c.expireAtLocked(r, c.clock.Now().Add(removePause)) // the next sweep tries again
		default:
			c.forgetUnsureLocked(r)
		}
	}
}

// The time between two attempts to delete keys, and at least between two sweeps.
const (
	removePause = 200 * time.Millisecond
	sweepPause  = 20 * time.Millisecond
)
