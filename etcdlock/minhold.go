package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A minimum hold also binds a holder that crashes: its name stays closed until then
// (P5). While more is left of it than of the TTL, the hold's key is on a lease of its
// own, which is never kept alive and ends with the minimum hold; a renewal only checks
// that the key is still there. The first renewal after that puts it on the lease of
// its TTL with all others.

// outlasts reports whether a minimum hold that begins at an instant ends after what a
// renewal at another one gives, so that the TTL alone would not keep the name closed.
func outlasts(req *driver.Request, began, now driver.Instant) bool {
	return req.MinHold > 0 && began.Add(req.MinHold) > now.Add(req.TTL-req.TTL/8+req.LockDelay)
}

// fixedFor returns a session for one hold whose lease lasts for what is left of its
// minimum hold: the same each time, because a minimum hold may be long, and etcd may have
// put the key there although the answer was lost.
func (c *client) fixedFor(ctx context.Context, r *record, req *driver.Request) (*session, error) {
	c.mu.Lock()
	s, left := c.minimums[r], r.began.Add(req.MinHold).Sub(c.clock.Now())
	c.mu.Unlock()
	if s != nil {
		if _, err := s.refresh(ctx, 0); !errors.Is(err, errOver) {
			return s, err
		}
	}
	s = &session{c: c, seconds: max(seconds(left)+1, c.minSeconds), fixed: true, busy: make(chan struct{}, 1)}
	_, err := s.refresh(ctx, 0)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.isKnownLocked(r) { // it was released meanwhile
			if !c.isClosed {
				c.revoke(s)
			}
			return s, driver.ErrNotHeld
		}
		c.minimums[r] = s
	}
	return s, err
}

// sessionFor returns the session that a hold's key should be on now.
func (c *client) sessionFor(ctx context.Context, r *record, req *driver.Request) (*session, error) {
	now := c.clock.Now()
	c.mu.Lock()
	fixed := outlasts(req, r.began, now)
	c.mu.Unlock()
	if fixed {
		return c.fixedFor(ctx, r, req)
	}
	return c.session(ctx, c.whole(req).seconds, now.Add(-req.TTL/8))
}

// putOnOwnLease puts a new hold on the lease of its minimum hold before its holder begins.
func (c *client) putOnOwnLease(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	switch {
	case driver.Gone(renewal.Err):
		return driver.Grant{}, renewal.Err
	case renewal.Err != nil:
		return driver.Grant{Request: g.Request}, driver.Uncertain(renewal.Err)
	}
	g.Since, g.Valid = renewal.Since, renewal.Valid
	return g, nil
}

// renewFixed renews holds that are on leases of their own, and returns those whose keys
// are gone. Their TTLs count from here, but they are not valid for longer than their
// leases: see renewed.
func (c *client) renewFixed(ctx context.Context, batch []renewing) (missing []renewing) {
	for len(batch) > 0 {
		some := batch[:min(batchSize, len(batch))]
		batch = batch[len(some):]
		sent := c.clock.Now()
		there, err := c.there(ctx, some)
		for i, r := range some {
			switch {
			case err != nil:
				r.out.Err = err
			case !there[i] || !c.renewed(r, r.session.Load(), sent):
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// revoke ends the lease of a hold that has left before its minimum hold was over: a
// courtesy, since there is nothing on it any more.
func (c *client) revoke(s *session) {
	c.background.Go(func() {
		ctx, cancel := c.bounded(c.life)
		defer cancel()
		c.spareRoute().leases.Revoke(ctx, s.lease())
	})
}

// stays returns until when a hold's key stays that is renewed by a request sent at since.
func (r *record) stays(req *driver.Request, since driver.Instant, valid time.Duration) driver.Instant {
	return max(since.Add(valid+req.LockDelay), r.began.Add(req.MinHold))
}

// move puts a hold's key on another lease. It reports false if the key is gone.
func (c *client) move(ctx context.Context, r renewing) bool {
	key, from := c.key(r.record), r.session.Load().lease()
	for {
		s, err := c.sessionFor(ctx, r.record, &r.grant.Request)
		if err != nil {
			r.out.Err = err
			return true
		}
		since := s.sentBefore(c.clock.Now())
		resp, err := commit(ctx, c.spareRoute().direct, table.Move(key, r.created, from, s.lease()))
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.end(s)
			continue
		case err != nil:
			r.out.Err = err
			return true
		case resp.Succeeded:
			return c.renewed(r, s, since)
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != r.created || clientv3.LeaseID(kvs[0].Lease) == from {
			return false
		}
		from = clientv3.LeaseID(kvs[0].Lease) // a request before took effect, although its answer was lost
	}
}
