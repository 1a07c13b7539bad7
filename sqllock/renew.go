package sqllock

import (
	"context"
	"database/sql"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// Renew implements driver.Driver. One statement renews many plain holds. If that are not all of them, a step for each
// tells which are gone.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	renewals := make([]driver.Renewal, len(grants))
	var plain, single []int
	for i := range grants {
		if g := &grants[i]; g.Mode == driver.Exclusive && !g.HandedOver && g.Block < 2 {
			plain = append(plain, i)
		} else {
			single = append(single, i)
		}
	}
	for batch := range slices.Chunk(plain, batchSize) {
		var names, owners []string
		for _, i := range batch {
			names, owners = append(names, grants[i].Name), append(owners, grants[i].Owner)
		}
		n := int64(0)
		_, err := c.request(ctx, renewing, func(ctx context.Context, conn *sql.Conn) (err error) {
			n, err = c.exec(ctx, conn, c.statements.list(renewText, names, owners))
			return err
		})
		if err == nil && n < int64(len(batch)) {
			single = append(single, batch...)
		}
		for _, i := range batch {
			renewals[i].Err = err
		}
	}
	for _, i := range single {
		g := &grants[i]
		renewals[i].Err = c.stepAlone(ctx, renewing, g.Name, func(a *change) error {
			h := a.Renew(g.Owner, sent, a.now)
			if h == nil {
				return a.reasonGone(g.Owner)
			}
			h.HandedOver(g)
			a.last = max(a.last, h.Token)
			return nil
		})
	}
	for i := range renewals {
		if err := renewals[i].Err; err == nil {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		} else if driver.Gone(err) {
			c.bells.lower(ctx, grants[i].Owner) // nobody releases it (P9)
		}
	}
	return renewals
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	sent := c.clock.Now()
	if err := c.stepAlone(ctx, usual, g.Name, func(a *change) error {
		h := a.Downgrade(g.Owner, sent, a.now)
		if h == nil {
			return a.reasonGone(g.Owner)
		}
		g.Token = h.Token
		a.settle(a.now, &a.rules) // other readers may come in now
		return nil
	}); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Claim = driver.Shared, sent, g.TTL, false
	return g, nil
}
