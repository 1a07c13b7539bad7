//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		out[i].Err = c.do(ctx, grants[i].Name, func(t *operation) error {
			h := t.Renew(grants[i].Owner, t.sent, t.now)
			if h == nil {
				return t.lost(grants[i].Owner)
			}
			h.HandedOver(&grants[i])
			out[i].Since, out[i].Valid = h.Since, h.Valid
			return nil
		})
	}
	return out
}

// lost says why an owner has no hold.
func (t *operation) lost(owner string) error {
	if t.wasBroken(owner) {
		return driver.ErrBroken
	}
	return driver.ErrNotHeld
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	var granted driver.Grant
	err := c.do(ctx, g.Name, func(t *operation) error {
		h := t.Downgrade(g.Owner, t.sent, t.now)
		if h == nil {
			return t.lost(g.Owner)
		}
		granted = t.Grant(h)
		t.settle() // other readers may come in now
		return nil
	})
	return granted, err
}
