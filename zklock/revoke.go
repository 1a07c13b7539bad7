package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// revokeMarker is what Curator's Revoker writes to a node to ask its holder to release.
var revokeMarker = []byte("__REVOKE__")

// Revoke asks the holders of a name to release it, as Curator's Revoker: Java's that have made their lock
// revocable, and Go's with Config.OnRevoke. It writes to their nodes, so the note that they showed is
// gone. Nobody is forced to obey: see Breaker.Break. d is a driver of this package. It returns
// driver.ErrNotHeld if nobody holds the name.
func Revoke(ctx context.Context, d driver.Driver, name string) error {
	c, ok := d.(*client)
	if !ok {
		return fmt.Errorf("revoking in a store of %T: %w", d, driver.ErrUnsupported)
	}
	return c.operate(ctx, name, func(ctx context.Context, k *keeper) error {
		nodes, _, _, err := c.nodes(ctx, k, name)
		if err != nil {
			return err
		}
		asked := false
		for _, n := range nodes {
			if !n.holds {
				break
			}
			if n.stem == stemLatch { // see Latch: nobody would hear that it has gone
				return fmt.Errorf("revoking an entry of LeaderLatch: %w", driver.ErrUnsupported)
			}
			_, err := k.one(ctx, zk.SetData(n.path, revokeMarker, zk.AnyVersion))
			if err != nil && !errors.Is(err, zk.NoNode) { // the hold may have been released
				return err
			}
			asked = asked || err == nil
		}
		if !asked {
			return driver.ErrNotHeld
		}
		return nil
	})
}

// revokedLocked tells of a hold whose node has the marker.
func (c *client) revokedLocked(o *owner, data []byte) {
	if c.onRevoke != nil && !c.isClosed && bytes.Equal(data, revokeMarker) {
		name, token := o.name, o.token
		c.background.Go(func() { c.onRevoke(name, token) })
	}
}
