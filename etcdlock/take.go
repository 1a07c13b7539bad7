package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// maxReads is how often a Try reads the name because a key was put in between. Then it is refused.
const maxReads = 4

// Try implements driver.Driver. The key is put if no key of the name is newer than what has been looked at, and what
// has been looked at leaves room: at first that is nothing, so a name that nobody uses takes one request. A refused
// Try puts nothing, so it is in nobody's way.
//
// Unfair (barging) changes nothing: a request that overtook a waiter would have a higher
// token than the waiter gets after it (P3).
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	g, err := c.try(ctx, req)
	if now := c.clock.Now(); err == nil && outlasts(&req, now, now) { // before its holder begins
		if g, err = c.collect(ctx, g); err != nil && !driver.Gone(err) {
			return driver.Grant{Request: req}, driver.Uncertain(err)
		}
	}
	return g, err
}

func (c *client) try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.reserve(&req)
	defer c.unreserve(r)
	state, again := c.stateOf(r)
	if state == leaving {
		return driver.Grant{}, driver.ErrNotHeld // it has just ended
	}
	key, dir, text := c.key(r), c.layout.Dir(req.Name), c.text(r, &req)
	limit := c.layout.Fewest(&req)
	if again {
		limit = 0 // its own key is to be found
	}
	for seen, round := int64(0), 0; round < maxReads; round++ {
		sent := c.clock.Now()
		// A hold that nobody renews lasts almost its whole TTL from here.
		s, err := c.session(ctx, holdSeconds(&req), sent.Add(-req.TTL/16))
		if err != nil {
			return driver.Grant{}, err
		}
		resp, err := c.main.txn(ctx, c.layout.Take(req.Name, req.Owner, key, text, s.id, seen, limit))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.end(s)
			continue // refused for certain, so it may be asked again
		}
		if err != nil {
			return c.unanswered(r, &req, s, sent, err)
		}
		if resp.Succeeded {
			return c.grant(r, &req, s, resp.Header.Revision), nil
		}
		in := c.layout.ReadInUse(dir, resp.Responses)
		if in.Newest <= seen && !in.More {
			return driver.Grant{}, driver.ErrNotHeld // nothing is newer: it was withdrawn before it arrived
		}
		if e := table.Find(in.Entries, req.Owner, key); e != nil {
			return c.adopt(ctx, r, &req, e)
		}
		if err := in.Refusal(&c.layout, &req); err != nil {
			return driver.Grant{}, err
		}
		seen = resp.Header.Revision
	}
	return driver.Grant{}, &driver.HeldError{Name: req.Name}
}

// collect returns a hold that its owner has already, renewed.
func (c *client) collect(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	g.Since, g.Valid = renewal.Since, renewal.Valid
	return g, nil
}

// Compare returns the guard for data in the same etcd: a condition that is true while the lease's hold is in the
// store. A transaction under it changes nothing after the hold has ended, also if its holder does not know that yet:
//
//	etcd.Txn(ctx).If(etcdlock.Compare(lease)).Then(clientv3.OpPut("stock/42", "7")).Commit()
//
// It compares the create revision of the hold's key. A hold that is handed over inside the process keeps its key, so
// one that Compare was asked for is not handed over: see holdfast.Lease.Grant (P1). Of a lease that is over, or of
// another store, it is a condition that is never true.
func Compare(lease *holdfast.Lease) clientv3.Cmp {
	g := lease.Grant()
	// Asked after Grant: a lease that is not over by now was not over then.
	if r, ok := g.Handle.(*record); ok && lease.Err() == nil {
		c := r.session.Load().c
		return clientv3.Compare(clientv3.CreateRevision(c.key(r)), "=", c.layout.Created(g.Token))
	}
	return clientv3.Compare(clientv3.Version("\x00"), "<", 0)
}
