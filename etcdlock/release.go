package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Release implements driver.Driver. The key of a hold is deleted. Of a request with an unknown outcome the key is
// deleted too, and a tombstone stays, so that the request comes to nothing when it arrives later (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	errs := make([]error, len(grants))
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var going []int
	for i := range grants {
		switch early, isClosed := c.beginRelease(&grants[i]); {
		case isClosed: // by a release before, whose answer was lost
		case early != nil:
			errs[i] = c.closeName(ctx, early, &grants[i])
		default:
			going = append(going, i)
		}
	}
	c.deleteKeys(ctx, grants, going, errs)
	var gone []int
	for i, g := range grants {
		if errs[i] != nil && !errors.Is(errs[i], driver.ErrNotHeld) {
			continue
		}
		c.mu.Lock()
		if r := c.recordLocked(g.Name, g.Owner); r != nil && r.state != closed {
			c.forgetLocked(r)
		}
		c.mu.Unlock()
		if g.Token == 0 {
			errs[i] = nil // withdrawn is withdrawn
		} else if errs[i] != nil {
			gone = append(gone, i)
		}
	}
	c.why(ctx, grants, gone, func(i int, err error) {
		if driver.Gone(err) {
			errs[i] = err
		}
	})
	return errs
}

// beginRelease notes that an owner's hold or request is being released. It returns the record of a hold whose minimum
// time is not over, and whether the name is closed for that already.
func (c *client) beginRelease(g *driver.Grant) (early *record, isClosed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.recordLocked(g.Name, g.Owner)
	if r == nil {
		return nil, false
	}
	if g.Token != 0 && c.clock.Now() < r.began.Add(g.MinHold) {
		early, isClosed = r, r.state == closed
	}
	if !isClosed {
		r.state = doubtful // until the store has confirmed it
		r.wakeLocked()
	}
	return early, isClosed
}

// deleteKeys deletes the keys of those grants, each if it is still the one that was put, and leaves tombstones where
// requests may still be under way. Its errors, in errs, are ErrNotHeld where there was nothing.
func (c *client) deleteKeys(ctx context.Context, grants []driver.Grant, going []int, errs []error) {
	removals := make([]table.Removal, len(grants))
	var known []int
	c.mu.Lock()
	for _, i := range going {
		g := &grants[i]
		if r := c.recordLocked(g.Name, g.Owner); r != nil {
			removals[i].Key, removals[i].Created = c.key(r), r.created
		}
		if strays(g) {
			removals[i].Tombstone = c.layout.Tombstone(g.Owner)
		}
	}
	c.mu.Unlock()
	for _, i := range going {
		if removals[i].Created == 0 {
			removals[i], errs[i] = c.findKey(ctx, &grants[i], removals[i].Key)
		}
		if errs[i] == nil {
			known = append(known, i)
		}
	}
	for some := range slices.Chunk(known, table.MaxRemovals) {
		batch, strayed := make([]table.Removal, len(some)), false
		for n, i := range some {
			batch[n] = removals[i]
			strayed = strayed || removals[i].Tombstone != ""
		}
		var tombstones clientv3.LeaseID
		var done *etcdserverpb.TxnResponse
		var err error
		if strayed {
			tombstones, err = c.tombstoneLease(ctx)
		}
		if err == nil {
			done, err = c.spareRoute().txn(ctx, table.Remove(batch, tombstones))
		}
		c.misses(err)
		for n, i := range some {
			switch {
			case err != nil:
				errs[i] = err
			case !table.Removed(done, len(batch), n):
				errs[i] = driver.ErrNotHeld
			}
		}
	}
}

// findKey finds the owner's key, which is that one if the client knows of any. The read and
// the tombstone are one transaction, so no request of the owner can take effect after the read.
func (c *client) findKey(ctx context.Context, g *driver.Grant, key string) (table.Removal, error) {
	dir := c.layout.Dir(g.Name)
	tombstone, err := c.tombstone(ctx, g)
	if err != nil {
		return table.Removal{}, err
	}
	resp, err := c.spareRoute().txn(ctx, &etcdserverpb.TxnRequest{Success: append(tombstone, table.Op(table.Read(dir)))})
	if err != nil {
		c.misses(err)
		return table.Removal{}, err
	}
	kvs := resp.Responses[len(tombstone)].GetResponseRange().Kvs
	e := table.Find(c.layout.ParseEntries(dir, kvs), g.Owner, key)
	if e == nil {
		return table.Removal{}, driver.ErrNotHeld
	}
	return table.Removal{Key: e.Key, Created: e.Created}, nil
}

// strays reports whether a request of the grant's owner may still be under way.
func strays(g *driver.Grant) bool { return g.Token == 0 || g.Stray }

// tombstone returns what makes a request of the grant's owner come to nothing: none if there is no such request.
func (c *client) tombstone(ctx context.Context, g *driver.Grant) ([]*etcdserverpb.RequestOp, error) {
	if !strays(g) {
		return nil, nil
	}
	lease, err := c.tombstoneLease(ctx)
	return []*etcdserverpb.RequestOp{table.PutOp([]byte(c.layout.Tombstone(g.Owner)), "", lease)}, err
}

// misses notes that the lease of tombstones has ended: the next attempt makes another.
func (c *client) misses(err error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tombstones = nil
	}
}

// closeName closes the name of a hold that is released before its minimum time is over: the key stays, without an
// owner, on a lease for the rest of the time. The client deletes it at the right moment, if it still lives then.
func (c *client) closeName(ctx context.Context, r *record, g *driver.Grant) error {
	rest := r.began.Add(g.MinHold).Sub(c.clock.Now())
	s, err := c.session(ctx, max(seconds(rest), c.minSeconds), c.clock.Now())
	if err != nil {
		return err
	}
	// The tombstone is put also if an operator broke the hold: a late request of its owner
	// must not take the name again (P6).
	tombstone, err := c.tombstone(ctx, g)
	if err != nil {
		return err
	}
	v := c.layout.NewValue(&g.Request, c.id, c.asked(r))
	v.Owner, v.Closed, v.Until = "", true, time.Now().Add(rest).UnixMilli()
	key := []byte(c.key(r))
	resp, err := c.spareRoute().txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{table.CompareCreated(key, nil, etcdserverpb.Compare_EQUAL, r.created)},
		Success: append(tombstone, table.PutOp(key, v.String(), s.id)),
		Failure: tombstone,
	})
	if err != nil {
		c.misses(err)
		return err
	}
	if !resp.Succeeded {
		return driver.ErrNotHeld
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isKnownLocked(r) {
		r.state = closed
		r.session.Store(s)
		c.expireAtLocked(r, r.began.Add(g.MinHold))
	}
	return nil
}
