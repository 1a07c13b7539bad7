package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Release implements driver.Driver. The key of a hold is deleted. Of a request with an
// unknown outcome the key is deleted too, and a tombstone stays, so that the request comes
// to nothing when it arrives later (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var leaving []driver.Grant
	var at []int
	for i := range grants {
		switch early, isClosed := c.beginRelease(&grants[i]); {
		case isClosed: // by a release before, whose answer was lost
		case early != nil:
			errs[i] = c.closeName(ctx, early, &grants[i])
		default:
			leaving, at = append(leaving, grants[i]), append(at, i)
		}
	}
	for i, err := range c.deleteKeys(ctx, leaving) {
		errs[at[i]] = err
	}
	var missing []renewing
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		switch g := &grants[i]; {
		case errs[i] == nil || errors.Is(errs[i], driver.ErrNotHeld):
			c.endRelease(g)
			if g.Token == 0 {
				errs[i] = nil // withdrawn is withdrawn
			} else if errs[i] != nil {
				missing = append(missing, renewing{nil, &out[i], g})
			}
		}
	}
	c.why(ctx, missing)
	for i := range out {
		if driver.Gone(out[i].Err) {
			errs[i] = out[i].Err
		}
	}
	return errs
}

// beginRelease notes that an owner's hold or request is being released. It returns the
// record of a hold whose minimum time is not over, and whether the name is closed for that
// already.
func (c *client) beginRelease(g *driver.Grant) (early *record, isClosed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record(g.Name, g.Owner)
	if r == nil {
		return nil, false
	}
	if g.Token != 0 && c.clock.Now() < r.began.Add(g.MinHold) {
		early, isClosed = r, r.state == closed
	}
	if !isClosed {
		r.state = doubtful // until the store has confirmed it
		c.wakeLocked(r)
	}
	return early, isClosed
}

// endRelease forgets an owner whose hold or request is released, unless its name is
// closed until the end of its minimum hold.
func (c *client) endRelease(g *driver.Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.record(g.Name, g.Owner); r != nil && r.state != closed {
		if s := c.minimums[r]; s != nil && !c.isClosed {
			c.revoke(s)
		}
		c.forgetLocked(r)
	}
}

// batchSize is how many keys one transaction deletes or compares.
const batchSize = table.MaxRemovals

// deleteKeys deletes the keys of grants, each if it is still the one that was put, and
// leaves tombstones for those whose requests may still be under way. It returns ErrNotHeld
// where there was nothing.
func (c *client) deleteKeys(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	var known []int
	keys := make([]*record, len(grants))
	c.mu.Lock()
	for i := range grants {
		if r := c.record(grants[i].Name, grants[i].Owner); r != nil {
			keys[i] = &record{name: r.name, n: r.n, created: r.created}
		}
	}
	c.mu.Unlock()
	for i, r := range keys {
		switch {
		case r == nil:
			errs[i] = c.deleteUnknown(ctx, &grants[i], "")
		case r.created == 0:
			errs[i] = c.deleteUnknown(ctx, &grants[i], c.key(r))
		default:
			known = append(known, i)
		}
	}
	for len(known) > 0 {
		some := known[:min(batchSize, len(known))]
		known = known[len(some):]
		c.deleteKnown(ctx, grants, keys, some, errs)
	}
	return errs
}

// deleteKnown deletes keys of which the create revision is known.
func (c *client) deleteKnown(ctx context.Context, grants []driver.Grant, keys []*record, some []int, errs []error) {
	removals := make([]table.Removal, len(some))
	var tombstones clientv3.LeaseID
	var err error
	for n, i := range some {
		removals[n] = table.Removal{Key: c.key(keys[i]), Created: keys[i].created}
		if strays(&grants[i]) && err == nil {
			removals[n].Tombstone = c.layout.Tombstone(grants[i].Owner)
			tombstones, err = c.tombstoneLease(ctx)
		}
	}
	var resp *etcdserverpb.TxnResponse
	if err == nil {
		resp, err = commit(ctx, c.spareRoute().direct, table.Remove(removals, tombstones))
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		c.deleteOnly(ctx, keys, some)
	}
	c.misses(err)
	for n, i := range some {
		switch {
		case err != nil:
			errs[i] = err
		case !table.Removed(resp, len(some), n):
			errs[i] = driver.ErrNotHeld
		}
	}
}

// deleteOnly deletes keys in a store that is full and takes nothing else. The
// names are free then; that nothing comes later can be promised when there is room
// again.
func (c *client) deleteOnly(ctx context.Context, keys []*record, some []int) {
	var ops []clientv3.Op
	for _, i := range some {
		created := clientv3.Compare(clientv3.CreateRevision(c.key(keys[i])), "=", keys[i].created)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{created}, []clientv3.Op{clientv3.OpDelete(c.key(keys[i]))}, nil))
	}
	c.spareRoute().kv.Txn(ctx).Then(ops...).Commit()
}

// deleteUnknown finds the owner's key, which is that one if the client knows of any, and
// deletes it. The read and the tombstone are one transaction, so no request of the owner
// can take effect after the read.
func (c *client) deleteUnknown(ctx context.Context, g *driver.Grant, key string) error {
	dir := c.layout.Dir(g.Name)
	ops := []clientv3.Op{clientv3.OpGet(dir, clientv3.WithPrefix())}
	if strays(g) {
		tombstone, err := c.tombstone(ctx, g)
		if err != nil {
			return err
		}
		ops = append(ops, tombstone)
	}
	resp, err := c.spareRoute().kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		c.misses(err)
		return err
	}
	e := table.Find(c.layout.ParseEntries(dir, resp.Responses[0].GetResponseRange().Kvs), g.Owner, key)
	if e == nil {
		return driver.ErrNotHeld
	}
	done, err := c.spareRoute().kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(e.Key), "=", e.Created),
	).Then(clientv3.OpDelete(e.Key)).Commit()
	if err == nil && !done.Succeeded {
		err = driver.ErrNotHeld
	}
	return err
}

// strays reports whether a request of the grant's owner may still be under way.
func strays(g *driver.Grant) bool { return g.Token == 0 || g.Stray }

// tombstone returns what makes a request of the grant's owner come to nothing.
func (c *client) tombstone(ctx context.Context, g *driver.Grant) (clientv3.Op, error) {
	lease, err := c.tombstoneLease(ctx)
	return clientv3.OpPut(c.layout.Tombstone(g.Owner), "", clientv3.WithLease(lease)), err
}

// misses notes that the lease of tombstones has ended: the next attempt makes another.
func (c *client) misses(err error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tombstones = nil
	}
}

// closeName closes the name of a hold that is released before its minimum time is
// over: the key stays, without an owner, on a lease for the rest of the time. The
// client deletes it at the right moment, if it still lives then.
func (c *client) closeName(ctx context.Context, r *record, g *driver.Grant) error {
	rest := r.began.Add(g.MinHold).Sub(c.clock.Now())
	s := r.session.Load()
	if s == nil || !s.fixed {
		var err error
		if s, err = c.session(ctx, max(seconds(rest), c.minSeconds), c.clock.Now()); err != nil {
			return err
		}
	}
	v := c.layout.NewValue(&g.Request, c.id, c.asked(r))
	v.Owner, v.Closed, v.Until = "", true, time.Now().Add(rest).UnixMilli()
	key := c.key(r)
	then := []clientv3.Op{clientv3.OpPut(key, v.String(), clientv3.WithLease(s.lease()))}
	var otherwise []clientv3.Op
	if g.Stray {
		tombstone, err := c.tombstone(ctx, g)
		if err != nil {
			return err
		}
		// Also if the hold is gone: suppose an operator broke it. A late request of its owner
		// must not take the name again (P6).
		then, otherwise = append(then, tombstone), append(otherwise, tombstone)
	}
	resp, err := c.spareRoute().kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(key), "=", r.created),
	).Then(then...).Else(otherwise...).Commit()
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
