package redislock

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// withdrawnFor is how long, at least, the store refuses a request that was withdrawn before it came
// (P6).
const withdrawnFor = time.Minute

// Release implements driver.Driver. A single plain hold is released without a script; of many holds
// a script releases a hundred at a time.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 1 {
		if done, err := c.releasePlain(ctx, &grants[0]); done {
			return []error{err}
		}
	}
	for i := range grants {
		c.removeWaiter(grants[i].Owner)
	}
	return withdrawn(grants, c.batch(ctx, c.reserved, releaseScript, grants, c.keysOf, func(g *driver.Grant) []string {
		return []string{
			escape(g.Owner), decimal(int64(g.Token)), decimal(micros(g.MinHold)), decimal(micros(refusedFor(g))),
		}
	}))
}

// refusedFor returns for how long the store must refuse further requests of the owner: 0 if none can be
// under way.
func refusedFor(g *driver.Grant) time.Duration {
	if g.Token == 0 || g.Stray {
		return max(g.TTL, withdrawnFor)
	}
	return 0
}

// withdrawn returns the errors of a release. A request that is withdrawn need not have been granted.
func withdrawn(grants []driver.Grant, errs []error) []error {
	for i := range errs {
		if grants[i].Token == 0 && driver.Gone(errs[i]) {
			errs[i] = nil
		}
	}
	return errs
}
