package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// Release implements driver.Driver. A hold is deleted; a request of which nobody
// knows what becomes of it is deleted and remembered, so that it comes to nothing
// when it arrives later (P6).
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
	var plain, strays []int
	for i := range grants {
		g := &grants[i]
		switch early, shut := c.leaves(g); {
		case shut: // by a release before, whose answer was lost
		case early != nil:
			errs[i] = c.shut(ctx, early, g)
		case g.Token == 0 || g.Stray:
			strays = append(strays, i)
		default:
			plain = append(plain, i)
		}
	}
	for len(plain) > 0 {
		some := plain[:min(maxOps, len(plain))]
		plain = plain[len(some):]
		c.delete(ctx, grants, some, errs, 0)
	}
	for len(strays) > 0 {
		some := strays[:min(maxOps/2, len(strays))]
		strays = strays[len(some):]
		c.withdraw(ctx, grants, some, errs)
	}
	var missing []renewing
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		if errors.Is(errs[i], driver.ErrNotHeld) {
			if grants[i].Token == 0 {
				errs[i] = nil // withdrawn is withdrawn
				continue
			}
			missing = append(missing, renewing{nil, &out[i], &grants[i]})
		}
	}
	c.why(ctx, missing)
	for i := range out {
		if out[i].Err != nil && driver.Gone(out[i].Err) {
			errs[i] = out[i].Err
		}
	}
	return errs
}

// leaves notes that an owner leaves. It returns the record of a hold whose minimum
// time is not over, and whether the name has been shut for that already.
func (c *client) leaves(g *driver.Grant) (early *record, shut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[g.Owner]
	if r == nil {
		return nil, false
	}
	if r.taken != 0 && g.Token != 0 && c.clock.Now() < r.taken.Add(g.MinHold) {
		early, shut = r, r.state == closed
	}
	if r.place != nil && r.place.waits != nil {
		r.place.waits.wake()
	}
	if !shut {
		r.state, r.place = doubtful, nil // until the store has confirmed it
	}
	return early, shut
}

// delete deletes the keys of the grants at those indices; with a lease it
// remembers the owners on it.
func (c *client) delete(ctx context.Context, grants []driver.Grant, at []int, errs []error, farewells clientv3.LeaseID) error {
	ops := make([]clientv3.Op, 0, 2*len(at))
	for _, i := range at {
		ops = append(ops, clientv3.OpDelete(c.layout.key(grants[i].Name, grants[i].Owner)))
	}
	if farewells != 0 {
		for _, i := range at {
			ops = append(ops, clientv3.OpPut(c.layout.gone(grants[i].Owner), "", clientv3.WithLease(farewells)))
		}
	}
	resp, err := c.kv.Txn(ctx).Then(ops...).Commit()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, i := range at {
		errs[i] = err
		if err != nil {
			continue
		}
		if r := c.records[grants[i].Owner]; r != nil {
			c.forget(r)
		}
		if resp.Responses[n].GetResponseDeleteRange().Deleted == 0 {
			errs[i] = driver.ErrNotHeld
		}
	}
	return err
}

// withdraw deletes keys and remembers their owners.
func (c *client) withdraw(ctx context.Context, grants []driver.Grant, at []int, errs []error) {
	for range 2 {
		lease, err := c.farewells(ctx)
		if err == nil {
			err = c.delete(ctx, grants, at, errs, lease)
		}
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.mu.Lock()
			c.goodbye = nil
			c.mu.Unlock()
			continue
		case errors.Is(err, rpctypes.ErrNoSpace):
			// A store that is full takes deletions only. The name is free then;
			// that nothing comes later can be promised when there is room again.
			c.delete(ctx, grants, at, errs, 0)
		}
		for _, i := range at {
			if err != nil {
				errs[i] = err
			}
		}
		return
	}
}

// shut closes the name of a hold that is released before its minimum time is
// over: the key stays, without an owner, on a lease for the rest of the time. The
// client deletes it at the right moment, if it still lives then.
func (c *client) shut(ctx context.Context, r *record, g *driver.Grant) error {
	rest := r.taken.Add(g.MinHold).Sub(c.clock.Now())
	s, err := c.session(ctx, max(seconds(rest), c.minSeconds), c.clock.Now())
	if err != nil {
		return err
	}
	v := newValue(&g.Request, c.id, r.asked)
	v.Closed, v.Until = true, time.Now().Add(rest).UnixMilli()
	key := c.layout.key(g.Name, g.Owner)
	then := []clientv3.Op{clientv3.OpPut(key, v.String(), clientv3.WithLease(s.lease()))}
	if g.Stray {
		lease, err := c.farewells(ctx)
		if err != nil {
			return err
		}
		then = append(then, clientv3.OpPut(c.layout.gone(g.Owner), "", clientv3.WithLease(lease)))
	}
	resp, err := c.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(key), "=", int64(r.token)),
	).Then(then...).Commit()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !resp.Succeeded {
		c.forget(r)
		return driver.ErrNotHeld
	}
	if c.records[r.owner] == r {
		r.state, r.session, r.since, r.keeps = closed, s, r.taken, g.MinHold
		c.postpone(r)
	}
	return nil
}
