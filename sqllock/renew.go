package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	errs := make([]error, len(grants))
	var all, single []int
	for i := range grants {
		all = append(all, i)
	}
	for batch := range slices.Chunk(all, batchSize) {
		single = append(single, c.renewMany(ctx, grants, batch, sent, errs)...)
	}
	for _, i := range single {
		errs[i] = c.renew(ctx, &grants[i], sent)
	}
	renewals := make([]driver.Renewal, len(grants))
	for i, err := range errs {
		if renewals[i].Err = err; err == nil {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		} else if driver.Gone(err) {
			c.bells.lower(ctx, grants[i].Owner) // nobody releases it (P9)
		}
	}
	return renewals
}

// renewMany renews some grants. One statement renews those that are plain holds. If that are not all, a transaction
// over all their rows renews the others, and tells which are gone. renewMany returns the grants at names where time
// has made room while others may wait: these are handed over by a step.
func (c *client) renewMany(
	ctx context.Context, grants []driver.Grant, which []int, sent driver.Instant, errs []error,
) (rest []int) {
	var names, owners []string // one pair for each grant that may be plain
	for _, i := range which {
		if g := &grants[i]; g.Mode == driver.Exclusive && !g.HandedOver && g.Block < 2 {
			names, owners = append(names, g.Name), append(owners, g.Owner)
		}
	}
	plain := func(ctx context.Context, conn *sql.Conn) (all bool, err error) {
		if len(names) == 0 {
			return false, nil
		}
		n, err := c.exec(ctx, conn, c.statements.list(renewText, names, owners))
		return n == int64(len(which)), err
	}
	return c.batch(ctx, renewing, grants, which, errs, plain, func(a *change, g *driver.Grant) error { return a.renew(g, sent) })
}

// batch lets f decide on some grants in one transaction over their rows, unless quick, if there is one, has done all. It sets the
// grants' errors, and returns those at names at which places have to be read: nothing has happened to them.
func (c *client) batch(
	ctx context.Context, u urgency, grants []driver.Grant, which []int, errs []error,
	quick func(context.Context, *sql.Conn) (bool, error), f func(*change, *driver.Grant) error,
) (rest []int) {
	at := map[string][]int{}
	for _, i := range which {
		at[grants[i].Name] = append(at[grants[i].Name], i)
	}
	var left []string
	_, err := c.request(ctx, u, func(ctx context.Context, conn *sql.Conn) (err error) {
		left = nil
		done := false
		if quick != nil {
			done, err = quick(ctx, conn)
		}
		if err == nil && !done {
			left, err = c.stepRows(ctx, conn, slices.Sorted(maps.Keys(at)), func(a *change) {
				for _, i := range at[a.name] {
					errs[i] = f(a, &grants[i])
				}
			})
		}
		return err
	})
	if err != nil {
		for _, i := range which {
			errs[i] = err
		}
		return nil
	}
	for _, name := range left {
		rest = append(rest, at[name]...)
	}
	return rest
}

// renew renews one grant by a step.
func (c *client) renew(ctx context.Context, g *driver.Grant, sent driver.Instant) error {
	var answer error
	_, err := c.request(ctx, renewing, func(ctx context.Context, conn *sql.Conn) error {
		return c.step(ctx, conn, g.Name, look{heads: headPlaces}, func(a *change) { answer = a.renew(g, sent) })
	})
	return errors.Join(err, answer)
}

// renew renews a hold of the record.
func (a *change) renew(g *driver.Grant, sent driver.Instant) error {
	h := a.Renew(g.Owner, sent, a.now)
	if h == nil {
		return a.reasonGone(g.Owner)
	}
	h.HandedOver(g)
	a.last = max(a.last, h.Token)
	return nil
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	sent := c.clock.Now()
	var answer error
	_, err := c.request(ctx, taking, func(ctx context.Context, conn *sql.Conn) error {
		return c.step(ctx, conn, g.Name, look{heads: headPlaces}, func(a *change) {
			h := a.Downgrade(g.Owner, sent, a.now)
			if answer = nil; h == nil {
				answer = a.reasonGone(g.Owner)
				return
			}
			g.Token = h.Token
			a.settle(a.now, &a.rules) // other readers may come in now
		})
	})
	if err = errors.Join(err, answer); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Claim = driver.Shared, sent, g.TTL, false
	return g, nil
}
