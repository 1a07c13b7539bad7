package etcdlock

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Annotate implements driver.Annotator.
func (c *client) Annotate(ctx context.Context, g driver.Grant) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	return c.changed(ctx, &g, func(v *table.Value) { v.Note = g.Note })
}
