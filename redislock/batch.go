package redislock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// batchSize is how many holds one script call renews or releases at most: the server does nothing
// else meanwhile. In a cluster it is one.
const batchSize = 100

// keysOf returns the keys of a grant.
func (c *client) keysOf(g *driver.Grant) []string { return c.layout.keys(g.Name) }

// batch runs a script over grants, batchSize at a time in one pipeline, and returns an error or nil for
// each.
func (c *link) batch(
	ctx context.Context, to route, s *script, grants []driver.Grant, keysOf, args func(*driver.Grant) []string,
) []error {
	errs := make([]error, len(grants))
	size := batchSize
	if c.cluster {
		size = 1 // all keys of a script must have one hash slot
	}
	var commands []Command
	for rest := grants; len(rest) > 0; {
		var keys, values []string
		part := rest[:min(size, len(rest))]
		for i := range part {
			keys = append(keys, keysOf(&part[i])...)
			values = append(values, args(&part[i])...)
		}
		commands = append(commands, c.command(s, keys, values...))
		rest = rest[len(part):]
	}
	replies := to.run(ctx, s, commands...)
	for i := range grants {
		reply := &replies[i/size]
		items, _ := reply.Value.([]any)
		switch {
		case reply.Err != nil:
			errs[i] = Explain(reply.Err)
		case i%size >= len(items):
			errs[i] = errUnexpected(reply.Value)
		default:
			if errs[i] = statusError(items[i%size]); errs[i] == nil {
				errs[i] = reply.short
			}
		}
	}
	return errs
}

// renewing is the route of renewals of these grants.
func (c *link) renewing(grants []driver.Grant) route {
	if c.reservedAck == nil || len(grants) == 0 {
		return c.reserved
	}
	least := slices.MinFunc(grants, func(a, b driver.Grant) int { return cmp.Compare(a.TTL, b.TTL) })
	return c.reservedAck.route(c.reserved, least.TTL)
}

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return c.renew(ctx, grants, func(g *driver.Grant) (token driver.Token, raise bool) {
		if g.HandedOver {
			return g.Token, false
		}
		return 0, false
	})
}

func (c *client) renew(ctx context.Context, grants []driver.Grant, token func(*driver.Grant) (driver.Token, bool)) []driver.Renewal {
	sent := c.clock.Now()
	return renewals(grants, sent, c.batch(ctx, c.renewing(grants), renewScript, grants, c.keysOf, func(g *driver.Grant) []string {
		token, raise := token(g)
		return []string{escape(g.Owner), decimal(int64(token)), decimal(flag(raise))}
	}))
}

// renewals returns the outcome of renewals that were sent at an instant.
func renewals(grants []driver.Grant, sent driver.Instant, errs []error) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	for i, err := range errs {
		if err != nil {
			renewals[i].Err = err
		} else {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		}
	}
	return renewals
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	sent := c.clock.Now()
	command := c.command(downgradeScript, c.layout.keys(g.Name), escape(g.Owner))
	reply := c.sharedAck.route(c.shared, g.TTL).run(ctx, downgradeScript, command)[0]
	if reply.Err != nil {
		return driver.Grant{}, Explain(reply.Err)
	}
	fields, _ := reply.Value.([]any)
	if number(fields, 0) != replyOK {
		return driver.Grant{}, listedStatusError(fields)
	}
	if reply.short != nil { // it is shared, but a replica may let its TTL end sooner
		return driver.Grant{}, reply.short
	}
	g.Mode, g.Token, g.Handle = driver.Shared, driver.Token(number(fields, 1)), nil
	g.Since, g.Valid, g.Claim = sent, g.TTL, false
	return g, nil
}

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
