package zklock

import (
	"context"
	"errors"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Annotate implements driver.Annotator. It writes the data of the hold's node, which wakes a waiter of
// Curator's that watches it, for nothing.
func (c *client) Annotate(ctx context.Context, g driver.Grant) error {
	if c.layout.latch {
		return driver.ErrUnsupported
	}
	if err := c.alive(ctx); err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	c.mu.Lock()
	o := c.owners[ownerKey{g.Name, g.Owner}]
	err := c.renewableLocked(o, &g, c.clock.Now())
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := o.lock(ctx); err != nil {
		return err
	}
	defer func() { <-o.busy }()
	c.mu.Lock()
	if err := c.renewableLocked(o, &g, c.clock.Now()); err != nil { // released meanwhile
		c.mu.Unlock()
		return err
	}
	k := o.keeper
	var ops []zk.Op
	for _, node := range o.nodes {
		data := []byte(g.Note)
		if o.downgraded {
			data = downgradedData(g.Note, o.token)
		}
		ops = append(ops, zk.SetData(node, data, zk.AnyVersion))
	}
	c.mu.Unlock()
	replies, err := k.do(ctx, ops...)
	if err != nil {
		return err
	}
	for i := range replies {
		if err := replies[i].Err; errors.Is(err, zk.NoNode) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.brokenLocked(o)
			return driver.ErrBroken
		} else if err != nil {
			return err
		}
	}
	return nil
}
