package zklock

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// Break implements driver.Breaker. The token names one hold for ever, by the transaction that made its
// node. Its holder learns of it by a watch on that.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.layout.checkName(name); err != nil {
		return err
	}
	if err := c.alive(ctx); err != nil {
		return err
	}
	if token <= 0 {
		return driver.ErrNotHeld
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	nodes, _, err := c.holding(ctx, s, name)
	if err != nil {
		return err
	}
	var paths []string
	for i := range nodes {
		if nodes[i].token == token {
			paths = append(paths, nodes[i].path)
		}
	}
	there, err := s.deleteNodes(ctx, paths)
	if err == nil && !there {
		err = driver.ErrNotHeld
	}
	return err
}
