package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// renewing is one grant of a batch on its way through Renew.
type renewing struct {
	*record
	out   *driver.Renewal
	grant *driver.Grant
}

// Renew implements driver.Driver. One request to etcd keeps alive all holds of a
// session. That does not tell whether their keys are still there, so these are
// compared, many in one request; what has been deleted is lost (P2). A hold that was
// handed over since has its token put on record, by a request of its own.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	sessions := map[*session][]renewing{}
	var moving, fixed, handedOver, missing []renewing
	c.mu.Lock()
	now := c.clock.Now()
	for i := range grants {
		r := renewing{c.record(grants[i].Name, grants[i].Owner), &out[i], &grants[i]}
		switch {
		case r.record == nil || !c.isHoldLocked(r.record, r.grant):
			missing = append(missing, r)
		case r.lapsed(now, grants[i].LockDelay):
			r.out.Err = driver.ErrNotHeld
		case r.claim || r.session.Load().fixed != outlasts(&r.grant.Request, r.began, now):
			moving = append(moving, r)
		case r.session.Load().fixed:
			fixed = append(fixed, r)
		default:
			s := r.session.Load()
			sessions[s] = append(sessions[s], r)
		}
		if grants[i].HandedOver {
			handedOver = append(handedOver, r)
		}
	}
	c.mu.Unlock()
	for s, batch := range sessions {
		missing = append(missing, c.renewSession(ctx, s, batch)...)
	}
	missing = append(missing, c.renewFixed(ctx, fixed)...)
	for _, r := range moving {
		if !c.move(ctx, r) {
			missing = append(missing, r)
		}
	}
	missing = append(missing, c.recordHandOvers(ctx, handedOver)...)
	c.why(ctx, missing)
	if len(sessions)+len(moving)+len(fixed) > 0 {
		c.listen()
	}
	return out
}

// recordHandOvers puts the tokens of holds that were handed over on record, several at a time:
// each is a request of its own, and the answers to the other renewals wait for them. It
// returns the holds whose keys are gone.
func (c *client) recordHandOvers(ctx context.Context, handedOver []renewing) (missing []renewing) {
	there := make([]bool, len(handedOver))
	var requests sync.WaitGroup
	room := make(chan struct{}, passedAtATime)
	for i, r := range handedOver {
		if *r.out == (driver.Renewal{}) || r.out.Err != nil {
			there[i] = true // missing, or not renewed
			continue
		}
		room <- struct{}{}
		requests.Go(func() {
			defer func() { <-room }()
			var err error
			if there[i], err = c.recordHandOver(ctx, r.record, r.grant); err != nil {
				there[i] = true
				*r.out = driver.Renewal{Err: err}
			}
		})
	}
	requests.Wait()
	for i, r := range handedOver {
		if !there[i] {
			missing = append(missing, r)
		}
	}
	return missing
}

// passedAtATime is how many tokens are put on record at the same time.
const passedAtATime = 64

// renewSession renews holds of one session, and returns those whose keys are gone.
func (c *client) renewSession(ctx context.Context, s *session, batch []renewing) (missing []renewing) {
	ttl := batch[0].grant.TTL
	for _, r := range batch {
		ttl = min(ttl, r.grant.TTL)
	}
	// Holds that were taken at different times soon have their TTLs started by
	// the same requests, and are due together.
	after := c.clock.Now().Add(-ttl / 8)
	var since driver.Instant
	var dead error
	alive := make(chan struct{})
	go func() { // beside the comparison of the keys, which is worth as much before as after
		defer close(alive)
		if since, dead = s.refresh(ctx, after); errors.Is(dead, errOver) {
			dead = driver.ErrNotHeld
		}
	}()
	var err error
	there := make([]bool, 0, len(batch))
	for len(there) < len(batch) && err == nil {
		var some []bool
		some, err = c.there(ctx, batch[len(there):min(len(there)+batchSize, len(batch))])
		there = append(there, some...)
	}
	<-alive
	for i, r := range batch {
		switch {
		case dead != nil:
			r.out.Err = dead
		case i >= len(there):
			r.out.Err = err
		case !there[i] || !c.renewed(r, s, since):
			missing = append(missing, r)
		}
	}
	return missing
}

// there reports which of the keys are there, and are the same as when they were
// put.
func (c *client) there(ctx context.Context, batch []renewing) ([]bool, error) {
	ifs, elses := make([]clientv3.Cmp, len(batch)), make([]clientv3.Op, len(batch))
	for i, r := range batch {
		key := c.key(r.record)
		ifs[i] = clientv3.Compare(clientv3.CreateRevision(key), "=", r.created)
		elses[i] = clientv3.OpGet(key, clientv3.WithKeysOnly())
	}
	resp, err := c.spareRoute().kv.Txn(ctx).If(ifs...).Else(elses...).Commit()
	if err != nil {
		return nil, err
	}
	there := make([]bool, len(batch))
	for i := range batch {
		there[i] = resp.Succeeded
		if !resp.Succeeded {
			kvs := resp.Responses[i].GetResponseRange().Kvs
			there[i] = len(kvs) > 0 && kvs[0].CreateRevision == batch[i].created
		}
	}
	return there, nil
}

// renewed notes that a hold's TTL was started again, unless it has been released
// or has ended meanwhile.
func (c *client) renewed(r renewing, s *session, since driver.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.state != held {
		return false
	}
	valid := r.grant.TTL
	if r.claim {
		// The lease that it comes to may have been kept alive before the claim's own time
		// began. The holder trusts no renewal that counts from earlier: such an
		// answer looks as if a later one had overtaken it.
		if claimed := r.until.Add(-c.short(&r.grant.Request, r.session.Load().seconds).keyLasts); since < claimed {
			valid, since = valid-claimed.Sub(since), claimed
		}
	}
	if s.fixed {
		// The lease is not kept alive, and may end before a whole TTL that begins now.
		lasts := time.Duration(s.seconds)*time.Second - r.grant.LockDelay
		valid = min(valid, s.since.Add(lasts).Sub(since))
	}
	r.claim = false
	r.session.Store(s)
	s.trusted = since.Add(valid)
	c.expireAtLocked(r.record, r.stays(&r.grant.Request, since, valid))
	*r.out = driver.Renewal{Since: since, Valid: valid}
	return true
}

// why finds out what became of holds that are not there: broken, or not held.
func (c *client) why(ctx context.Context, missing []renewing) {
	for len(missing) > 0 {
		some := missing[:min(batchSize, len(missing))]
		missing = missing[len(some):]
		ops := make([]clientv3.Op, len(some))
		for i, r := range some {
			ops[i] = clientv3.OpGet(c.layout.BrokenHold(c.id, c.layout.Created(r.grant.Token)), clientv3.WithCountOnly())
		}
		resp, err := c.spareRoute().kv.Txn(ctx).Then(ops...).Commit()
		for i, r := range some {
			switch {
			case err != nil:
				r.out.Err = err
				continue
			case resp.Responses[i].GetResponseRange().Count > 0:
				r.out.Err = driver.ErrBroken
			default:
				r.out.Err = driver.ErrNotHeld
			}
			c.mu.Lock()
			if r.record != nil && r.state == held {
				c.forgetLocked(r.record)
			}
			c.mu.Unlock()
		}
	}
}

// isHoldLocked reports whether a record is the hold of a grant.
func (c *client) isHoldLocked(r *record, g *driver.Grant) bool {
	return r.state == held && (g.Token == 0 || r.created == c.layout.Created(g.Token))
}

// Downgrade implements driver.Downgrader: the key stays, and so does its place in
// the order and the token.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	c.mu.Lock()
	r := c.record(g.Name, g.Owner)
	c.mu.Unlock()
	if r == nil {
		return driver.Grant{}, driver.ErrNotHeld
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.changed(ctx, r, &g, func(v *table.Value) { v.Mode = driver.Shared.String() }); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Handle, g.HandedOver, g.Claim = driver.Shared, renewal.Since, renewal.Valid, r, false, false
	return g, nil
}

// sleep waits for d. It returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
