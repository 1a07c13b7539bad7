package etcdlock

import (
	"context"
	"errors"
	"time"

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

// takeBack takes a key back that is no use, and returns why. If that gets no answer, it may arrive late. An owner
// that asked again would get the same key as its hold, which the late request would then end (P1). So the owner is
// refused from then on: package holdfast withdraws it, and asks under another.
func (c *client) takeBack(
	ctx context.Context, r *record, req *driver.Request, s *session, sent driver.Instant, created int64, why error,
) (driver.Grant, error) {
	_, err := c.main.txn(ctx, table.Remove([]table.Removal{{Key: c.key(r), Created: created}}, 0))
	if err == nil {
		return driver.Grant{}, why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubtLocked(r, req, s, sent); r.state == doubtful {
		r.state = leaving
	}
	return driver.Grant{Request: *req}, driver.Uncertain(err)
}

// adopt takes over a key of the owner of which this client did not know for sure: an answer
// was lost. It is confirmed like a place, on the lease that it was put on.
func (c *client) adopt(ctx context.Context, r *record, req *driver.Request, e *table.Entry) (driver.Grant, error) {
	s := r.session.Load()
	if e.Key != c.key(r) || s == nil {
		return driver.Grant{}, c.layout.HeldError(req, []table.Entry{*e}) // of the same owner, but of another client
	}
	c.mu.Lock()
	r.state = queued
	r.putLocked(s, e.Created)
	c.mu.Unlock()
	g, err := c.confirm(ctx, r, req)
	if errors.Is(err, errGone) {
		err = driver.ErrNotHeld
	}
	return g, err
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

// stateOf returns what a record's key is, and whether an earlier request may have put it.
func (c *client) stateOf(r *record) (s state, mayBeThere bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.state, r.state != asking || r.asks > 1
}

// grant notes a hold whose key is on its session's lease, and returns it. It is
// trusted from the sending of the request that last kept the lease alive.
func (c *client) grant(r *record, req *driver.Request, s *session, created int64) driver.Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.putLocked(s, created)
	return c.beginLocked(r, req, req.TTL, req.LockDelay)
}

// beginLocked begins a hold whose create revision and session its record has. Its key stays for the delay after that.
func (c *client) beginLocked(r *record, req *driver.Request, lasts, delay time.Duration) driver.Grant {
	r.place = nil
	since := r.session.Load().since
	r.state, r.claim, r.began = held, false, c.clock.Now()
	r.trusted = since.Add(lasts)
	c.expireAtLocked(r, r.trusted.Add(delay))
	g := c.granted(r, req)
	g.Since, g.Valid = since, lasts
	return g
}

// granted returns the grant of a hold, but for its time. All tokens of a create revision
// are the hold's; the grant has as many as were asked for.
func (c *client) granted(r *record, req *driver.Request) driver.Grant {
	return driver.Grant{
		Request: *req, Token: c.layout.Token(r.created), Block: min(max(req.Tokens, 1), c.layout.Block()), Handle: r,
	}
}

// putLocked notes where a record's key is, and when it was created. Those who confirm the same place together all
// know that, and read it without the lock, so it is written only if it is another one.
func (r *record) putLocked(s *session, created int64) {
	r.session.Store(s)
	if r.created != created {
		r.created = created
	}
}

// unanswered returns the error of a request to put a key. Unless the store has
// refused it, the client keeps in mind that the key may be there.
func (c *client) unanswered(r *record, req *driver.Request, s *session, sent driver.Instant, err error) (driver.Grant, error) {
	if refused(err) {
		return driver.Grant{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubtLocked(r, req, s, sent)
	return driver.Grant{Request: *req}, driver.Uncertain(err)
}

// doubtLocked keeps in mind that a record's key may be there.
func (c *client) doubtLocked(r *record, req *driver.Request, s *session, sent driver.Instant) {
	if r.state == asking {
		r.state = doubtful
		r.session.Store(s)
		c.expireAtLocked(r, sent.Add(req.TTL+req.LockDelay))
	}
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
