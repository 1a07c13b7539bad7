package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// Renew implements driver.Driver. One request to etcd keeps alive all holds of a session. That does not tell whether
// their keys are still there, so these are compared, many in one request; what has been deleted is lost (P2). A hold
// that was handed over since has its token put on record, by a request of its own.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	out := make([]driver.Renewal, len(grants))
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	sessions := map[*session][]renewing{}
	var moving, handedOver []renewing
	c.mu.Lock()
	now := c.clock.Now()
	for i := range grants {
		r := renewing{c.recordLocked(grants[i].Name, grants[i].Owner), &out[i], &grants[i]}
		switch {
		case r.record == nil || r.state != held || r.grant.Token != 0 && r.created != c.layout.Created(r.grant.Token):
			r.out.Err = errGone
		case now >= r.trusted: // its key may be there for the lock-delay
			r.out.Err = driver.ErrNotHeld
		case r.claim || r.session.Load().fixed != outlasts(&r.grant.Request, r.began, now):
			moving = append(moving, r)
		default:
			s := r.session.Load()
			if s.fixed {
				s = nil // nothing is kept alive
			}
			sessions[s] = append(sessions[s], r)
		}
		if grants[i].HandedOver {
			handedOver = append(handedOver, r)
		}
	}
	c.mu.Unlock()
	for s, batch := range sessions {
		c.renewSession(ctx, s, batch)
	}
	for _, r := range moving {
		if err := c.move(ctx, r); err != nil {
			r.out.Err = err
		}
	}
	c.recordHandOvers(ctx, handedOver)
	var gone []int
	for i := range out {
		if out[i].Err == errGone {
			gone = append(gone, i)
		}
	}
	c.why(ctx, grants, gone, func(i int, err error) {
		out[i].Err = err
		c.mu.Lock()
		defer c.mu.Unlock()
		if r := c.recordLocked(grants[i].Name, grants[i].Owner); r != nil && r.state == held && driver.Gone(err) {
			c.forgetLocked(r)
		}
	})
	if len(sessions)+len(moving) > 0 {
		c.listen()
	}
	return out
}

// renewSession renews holds of one session, or those that are on leases of their own if it is nil.
func (c *client) renewSession(ctx context.Context, s *session, batch []renewing) {
	ttl := batch[0].grant.TTL
	for _, r := range batch {
		ttl = min(ttl, r.grant.TTL)
	}
	since := c.clock.Now()
	var dead error
	var alive sync.WaitGroup
	if s != nil {
		// Holds that were taken at different times soon have their TTLs started by
		// the same requests, and are due together.
		after := since.Add(-ttl / 8)
		alive.Go(func() { // beside the comparison of the keys, which is worth as much before as after
			if since, dead = s.refresh(ctx, after); errors.Is(dead, errOver) {
				dead = driver.ErrNotHeld
			}
		})
	}
	there, err := c.there(ctx, batch)
	alive.Wait()
	for i, r := range batch {
		switch {
		case dead != nil:
			r.out.Err = dead
		case i >= len(there):
			r.out.Err = err
		case !there[i] || !c.renewed(r, cmp.Or(s, r.session.Load()), since):
			r.out.Err = errGone
		}
	}
}

// there reports which of the keys are there, and are the same as when they were
// put; of the first ones, if an error comes.
func (c *client) there(ctx context.Context, batch []renewing) (there []bool, err error) {
	for some := range slices.Chunk(batch, table.MaxRemovals) {
		txn := &etcdserverpb.TxnRequest{}
		for _, r := range some {
			key := []byte(c.key(r.record))
			txn.Compare = append(txn.Compare, table.CompareCreated(key, nil, etcdserverpb.Compare_EQUAL, r.created))
			txn.Failure = append(txn.Failure, table.Op(&etcdserverpb.RangeRequest{Key: key, KeysOnly: true}))
		}
		resp, err := c.spareRoute().txn(ctx, txn)
		if err != nil {
			return there, err
		}
		for i := range some {
			ok := resp.Succeeded
			if !ok {
				kvs := resp.Responses[i].GetResponseRange().Kvs
				ok = len(kvs) > 0 && kvs[0].CreateRevision == some[i].created
			}
			there = append(there, ok)
		}
	}
	return there, nil
}

// renewed notes that a hold's TTL was started again, unless it has been released or has ended in the meantime.
func (c *client) renewed(r renewing, s *session, since driver.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.state != held {
		return false
	}
	valid := r.grant.TTL
	if r.claim {
		// The lease that it comes to may have been kept alive before the claim's own time began. The holder trusts no
		// renewal that counts from earlier: such an answer looks as if a later one had overtaken it.
		if claimed := r.until.Add(-c.claimLasts(r.record, &r.grant.Request)); since < claimed {
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
	r.trusted = since.Add(valid)
	c.expireAtLocked(r.record, max(r.trusted.Add(r.grant.LockDelay), r.began.Add(r.grant.MinHold)))
	*r.out = driver.Renewal{Since: since, Valid: valid}
	return true
}

// why finds out what became of the holds of some grants, which are not there, and tells of each: broken, or not held.
func (c *client) why(ctx context.Context, grants []driver.Grant, gone []int, tell func(i int, err error)) {
	for some := range slices.Chunk(gone, table.MaxRemovals) {
		txn := &etcdserverpb.TxnRequest{}
		for _, i := range some {
			marker := table.RangeOp([]byte(c.layout.BrokenHold(c.id, c.layout.Created(grants[i].Token))), nil, 0)
			txn.Success = append(txn.Success, marker)
		}
		resp, err := c.spareRoute().txn(ctx, txn)
		for n, i := range some {
			switch {
			case err != nil:
				tell(i, err)
			case resp.Responses[n].GetResponseRange().Count > 0:
				tell(i, driver.ErrBroken)
			default:
				tell(i, driver.ErrNotHeld)
			}
		}
	}
}

// A minimum hold also binds a holder that crashes: its name stays closed until then (P5). While more is left of it
// than of the TTL, the hold's key is on a lease of its own, which is never kept alive and ends with the minimum hold;
// a renewal only checks that the key is still there. The first renewal after that puts it on the lease of its TTL
// with all others.

// outlasts reports whether a minimum hold that begins at an instant ends after what a
// renewal at another one gives, so that the TTL alone would not keep the name closed.
func outlasts(req *driver.Request, began, now driver.Instant) bool {
	return req.MinHold > 0 && began.Add(req.MinHold) > now.Add(req.TTL-req.TTL/8+req.LockDelay)
}

// fixedFor returns a session for one hold whose lease lasts for what is left of its minimum hold: the same each time,
// because a minimum hold may be long, and etcd may have put the key there although the answer was lost. A lease that
// is left without its hold ends with the minimum hold.
func (c *client) fixedFor(ctx context.Context, r *record, left time.Duration) (*session, error) {
	c.mu.Lock()
	s := r.minimum
	c.mu.Unlock()
	if s != nil {
		if _, err := s.refresh(ctx, 0); !errors.Is(err, errOver) {
			return s, err
		}
	}
	s = c.newSession(max(seconds(left)+1, c.minSeconds))
	s.fixed = true
	if _, err := s.refresh(ctx, 0); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isKnownLocked(r) { // it was released in the meantime
		return nil, driver.ErrNotHeld
	}
	r.minimum = s
	return s, nil
}

// move puts a hold's key on the lease that it should be on now. It returns errGone if the key is gone.
func (c *client) move(ctx context.Context, r renewing) error {
	key, from := c.key(r.record), r.session.Load().id
	for {
		req, now := &r.grant.Request, c.clock.Now()
		c.mu.Lock()
		fixed, left := outlasts(req, r.began, now), r.began.Add(req.MinHold).Sub(now)
		c.mu.Unlock()
		var s *session
		var err error
		if fixed {
			s, err = c.fixedFor(ctx, r.record, left)
		} else {
			s, err = c.session(ctx, holdSeconds(req), now.Add(-req.TTL/8))
		}
		if err != nil {
			return err
		}
		since := s.sentBefore(c.clock.Now())
		resp, err := c.spareRoute().txn(ctx, table.Move(key, r.created, from, s.id))
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.end(s)
			continue
		case err != nil:
			return err
		case resp.Succeeded && c.renewed(r, s, since):
			return nil
		case resp.Succeeded:
			return errGone // it was released in the meantime
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != r.created || clientv3.LeaseID(kvs[0].Lease) == from {
			return errGone
		}
		from = clientv3.LeaseID(kvs[0].Lease) // a request before took effect, although its answer was lost
	}
}

// recordHandOvers puts the tokens of holds that were handed over on record (P3), several at a time: each is a request
// of its own, and the answers to the other renewals wait for them. A store that is full takes no value; the hold is
// renewed all the same, and operators see the token from before.
func (c *client) recordHandOvers(ctx context.Context, handedOver []renewing) {
	for some := range slices.Chunk(handedOver, recordsAtOnce) {
		var requests sync.WaitGroup
		for _, r := range some {
			if r.out.Err != nil {
				continue
			}
			requests.Go(func() {
				times := int(r.grant.Token - c.layout.Token(r.created))
				there, err := c.change(ctx, r.record, r.grant, func(v *table.Value) { v.HandedOver = max(v.HandedOver, times) })
				switch {
				case err == nil && !there:
					*r.out = driver.Renewal{Err: errGone}
				case err != nil && !errors.Is(err, rpctypes.ErrNoSpace):
					*r.out = driver.Renewal{Err: err}
				}
			})
		}
		requests.Wait()
	}
}

// recordsAtOnce is how many tokens are put on record at the same time.
const recordsAtOnce = 64

// change edits the value of a hold's key, and reports whether the hold is there. The same key is put again, so its
// place in the order and its tokens stay. It is put only if it is as it was when it was read: a change that arrives
// late, after the hold was downgraded or its name closed, must undo neither. The first attempt reads nothing: it
// assumes that the value has not been changed yet.
func (c *client) change(ctx context.Context, r *record, g *driver.Grant, edit func(*table.Value)) (there bool, err error) {
	key, mod := c.key(r), r.created
	v := c.layout.NewValue(&g.Request, c.id, c.asked(r))
	for {
		edit(&v)
		resp, err := c.spareRoute().txn(ctx, table.Change(key, mod, c.layout.Text(v)))
		if err != nil || resp.Succeeded {
			return err == nil, err
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != r.created {
			return false, nil
		}
		var ok bool
		if v, ok = table.ParseValue(kvs[0].Value); !ok { // plain: the note says everything
			v = c.layout.NewValue(&g.Request, c.id, c.asked(r))
		}
		if v.Closed {
			return false, nil
		}
		mod = kvs[0].ModRevision
	}
}

// Downgrade implements driver.Downgrader: the key stays, and so does its place in the order and the token.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	g, err := c.collect(ctx, g)
	if err != nil {
		return g, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	c.mu.Lock()
	r, there := c.recordLocked(g.Name, g.Owner), false
	c.mu.Unlock()
	if r != nil {
		there, err = c.change(ctx, r, &g, func(v *table.Value) { v.Mode = driver.Shared.String() })
	}
	if err == nil && !there {
		c.why(ctx, []driver.Grant{g}, []int{0}, func(_ int, why error) { err = why })
	}
	if err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.HandedOver, g.Claim = driver.Shared, false, false
	return g, nil
}
