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

// maxReads is how often a Try reads the name again because a key was put in between.
const maxReads = 3

// Try implements driver.Driver. The key is put if no key of the name is newer
// than what has been looked at, and what has been looked at leaves room: at first
// that is nothing, so a name that nobody uses takes one request. A refused Try
// puts nothing, so it is in nobody's way.
//
// Not all keys in that range are the name's (see layout.isEntry), and many readers come
// at the same time. Suppose orders/1 to orders/16 are taken and released all the time,
// in the layout Stock: then something newer is there at every attempt, and the free name
// orders would never be granted (P7). So after some attempts the key is put all the same,
// and taken back if another key was before it.
//
// Unfair (barging) changes nothing: a request that overtook a waiter would have a higher
// token than the waiter gets after it (P3).
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	g, err := c.try(ctx, req)
	if now := c.clock.Now(); err == nil && outlasts(&req, now, now) {
		return c.putOnOwnLease(ctx, g)
	}
	return g, err
}

func (c *client) try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.reserve(&req)
	defer c.unreserve(r)
	if c.isLeaving(r) {
		return driver.Grant{}, driver.ErrNotHeld // it has just ended
	}
	key, dir := c.key(r), c.layout.Dir(req.Name)
	text := c.layout.Text(c.layout.NewValue(&req, c.id, c.asked(r)))
	limit := c.layout.Fewest(&req)
	if c.mayBeThere(r) {
		limit = 0 // its own key is to be found
	}
	if c.isWanted(dir) || !c.hasSession(c.whole(&req).seconds) {
		// It is likely to be held, or the transaction needs a lease first, which is a write.
		// A read costs less. Suppose that a thousand clients start together and want the
		// name: most of them write nothing before they take a place.
		resp, err := c.kv.Get(ctx, dir, clientv3.WithPrefix(), clientv3.WithLimit(limit))
		if err != nil {
			return driver.Grant{}, err
		}
		in := c.layout.ReadInUse(dir, (*etcdserverpb.RangeResponse)(resp))
		if table.Find(in.Entries, req.Owner, key) == nil {
			if err := in.Refusal(&c.layout, &req); err != nil {
				return driver.Grant{}, c.refused(ctx, &req, &in, err)
			}
		}
	}
	for seen, round := int64(0), 0; ; round++ {
		sent := c.clock.Now()
		// A hold that nobody renews lasts almost its whole TTL from here.
		s, err := c.session(ctx, seconds(req.TTL+req.LockDelay), sent.Add(-req.TTL/16))
		if err != nil {
			return driver.Grant{}, err
		}
		resp, err := commit(ctx, c.direct, c.layout.Take(req.Name, req.Owner, key, text, s.lease(), seen, limit))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.end(s)
			continue // refused for certain, so it may be asked again
		}
		if err != nil {
			return c.unanswered(r, &req, s, sent, err)
		}
		if resp.Succeeded {
			return c.grant(r, &req, s, resp.Header.Revision, c.whole(&req)), nil
		}
		in := c.layout.ReadInUse(dir, resp.Responses[0].GetResponseRange())
		if in.Newest <= seen && !in.More {
			return driver.Grant{}, driver.ErrNotHeld // nothing is newer: it was withdrawn before it arrived
		}
		if e := table.Find(in.Entries, req.Owner, key); e != nil {
			return c.adopt(ctx, r, &req, e, c.whole(&req))
		}
		if in.More && len(in.Entries) == 0 {
			limit = 0 // what was read is no entry, and there is more
			continue
		}
		if err := in.Refusal(&c.layout, &req); err != nil {
			return driver.Grant{}, c.refused(ctx, &req, &in, err)
		}
		if round >= maxReads {
			g, err := c.putAndCheck(ctx, r, &req, s)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				c.end(s)
				continue
			}
			return g, err
		}
		seen = resp.Header.Revision
	}
}

// refused notes how many use a name on which a Try was refused, and returns why it was. If
// not all of them were read it asks for the first, to say who holds the name. That is not
// done for those who wait: etcd goes through all keys of the name.
func (c *client) refused(ctx context.Context, req *driver.Request, in *table.InUse, why error) error {
	c.mu.Lock()
	c.noteAheadLocked(req.Name, in.Count)
	c.mu.Unlock()
	var held *driver.HeldError
	if !in.More || !errors.As(why, &held) {
		return why
	}
	dir := c.layout.Dir(req.Name)
	resp, err := c.kv.Get(ctx, dir, append(clientv3.WithFirstCreate(), clientv3.WithSerializable())...)
	if err != nil || resp.Header.Revision < in.Newest {
		return why // it is refused for certain all the same
	}
	if first := c.layout.ParseEntries(dir, resp.Kvs); len(first) > 0 {
		held.Note, held.Token = first[0].Value.Note, c.layout.TokenOf(&first[0])
	}
	return why
}

// putAndCheck is a Try that puts the key at once, on a session, and reads in the same
// transaction what was before it.
func (c *client) putAndCheck(ctx context.Context, r *record, req *driver.Request, s *session) (driver.Grant, error) {
	key, dir := c.key(r), c.layout.Dir(req.Name)
	sent := c.clock.Now()
	resp, err := c.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(c.layout.Tombstone(req.Owner)), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
	).Then(
		clientv3.OpPut(key, c.layout.Text(c.layout.NewValue(req, c.id, c.asked(r))), clientv3.WithLease(s.lease())),
		clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	).Commit()
	if err != nil {
		return c.unanswered(r, req, s, sent, err)
	}
	if !resp.Succeeded {
		return driver.Grant{}, driver.ErrNotHeld // it was withdrawn before it arrived
	}
	others := table.Without(c.layout.ParseEntries(dir, resp.Responses[1].GetResponseRange().Kvs), key)
	if c.layout.Mismatch(req, others) == nil && table.Admits(others, table.UseOf(req)) {
		return c.grant(r, req, s, resp.Header.Revision, c.whole(req)), nil
	}
	return c.takeBack(ctx, r, req, s, sent, resp.Header.Revision, c.layout.Refusal(req, others))
}

// Enqueue implements driver.Queuer. A place is a key on the lease of places,
// which is short, so that a client that has died delays nobody for long (P7); a
// hold that comes out of it is a claim until it is renewed.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.reserve(&req)
	defer c.unreserve(r)
	if c.isLeaving(r) {
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	}
	c.mu.Lock()
	state := r.state
	c.mu.Unlock()
	switch state {
	case held:
		return c.collect(ctx, r, &req)
	case queued:
		g, err := c.confirm(ctx, r, &req)
		if !errors.Is(err, errGone) {
			return g, err
		}
		again := c.reserve(&req)
		defer c.unreserve(again)
		r = again
	}
	return c.line(ctx, r, &req)
}

// errGone says that a place is not there any more.
var errGone = errors.New("the place is gone")

// collect returns a hold that its owner has already.
func (c *client) collect(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	g := c.granted(r, req)
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	g.Since, g.Valid = renewal.Since, renewal.Valid
	return g, nil
}

// confirm gives a place's sign of life, and reads whether it has become a hold.
func (c *client) confirm(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	sent := c.clock.Now()
	s := r.session.Load()
	if since, err := s.refresh(ctx, sent.Add(-s.pulse())); errors.Is(err, errOver) {
		c.forgetUnsure(r)
		return driver.Grant{}, errGone
	} else if err != nil {
		return driver.Grant{}, err
	} else {
		sent = min(sent, since)
	}
	stop := s.beating(ctx)
	v, err := c.look(ctx, r, req)
	stop()
	if errors.Is(err, driver.ErrHeld) {
		return driver.Grant{}, errGone
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return c.placed(ctx, r, req, s, r.created, *v, sent, v.Entries)
}

// look returns what is before a place now.
func (c *client) look(ctx context.Context, r *record, req *driver.Request) (*table.View, error) {
	c.mu.Lock()
	var last table.View
	if p := c.places[r]; p != nil {
		last = p.view
	}
	c.mu.Unlock()
	if v, err := c.still(ctx, r, req, last, 0); v != nil || err != nil {
		return v, err
	}
	return c.readView(ctx, r, req, 0)
}

// line takes a place at the end of the queue.
func (c *client) line(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	key, dir := c.key(r), c.layout.Dir(req.Name)
	text := c.layout.Text(c.layout.NewValue(req, c.id, c.asked(r)))
	for {
		sent := c.clock.Now()
		secs := c.placeSeconds(req.Name)
		s, err := c.session(ctx, secs, sent.Add(-pulse(secs)))
		if err != nil {
			return driver.Grant{}, err
		}
		stop := s.beating(ctx)
		resp, err := c.kv.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(c.layout.Tombstone(req.Owner)), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
		).Then(
			append(c.layout.GetInUse(req), clientv3.OpPut(key, text, clientv3.WithLease(s.lease())))...,
		).Else(
			clientv3.OpGet(key),
		).Commit()
		stop()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.end(s)
			continue
		}
		if err != nil {
			return c.unanswered(r, req, s, sent, err)
		}
		if !resp.Succeeded {
			own := c.layout.ParseEntries(dir, resp.Responses[0].GetResponseRange().Kvs)
			if e := table.Find(own, req.Owner, key); e != nil {
				return c.adopt(ctx, r, req, e, c.short(req, c.minSeconds))
			}
			if len(own) > 0 {
				return driver.Grant{}, errors.New("etcd still has the key of a hold that has ended")
			}
			return driver.Grant{}, driver.ErrNotHeld // it was withdrawn before it arrived
		}
		in := c.layout.ReadInUse(dir, resp.Responses[0].GetResponseRange())
		for _, some := range resp.Responses[1 : len(resp.Responses)-1] {
			in.Know(c.layout.ParseEntries(dir, some.GetResponseRange().Kvs))
		}
		if err := c.layout.Mismatch(req, in.Entries); err != nil {
			return c.takeBack(ctx, r, req, s, sent, resp.Header.Revision, err)
		}
		return c.placed(ctx, r, req, s, resp.Header.Revision, in.Before(req, resp.Header.Revision), s.sentBefore(sent), in.Entries)
	}
}

// takeBack takes a key back that is no use, and returns why. Suppose that gets no answer, and is under way for
// long. If the owner asked again, the key would become its hold, which the request would then end (P1).
// So the owner is refused from then on: package holdfast withdraws it, and asks under another.
func (c *client) takeBack(
	ctx context.Context, r *record, req *driver.Request, s *session, sent driver.Instant, created int64, why error,
) (driver.Grant, error) {
	_, err := c.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(c.key(r)), "=", created),
	).Then(clientv3.OpDelete(c.key(r))).Commit()
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

// createdLocked notes when a record's key was created. Those who confirm the same place together all know it, and
// read it without the lock, so it is written only if it is another one.
func (r *record) createdLocked(created int64) {
	if r.created != created {
		r.created = created
	}
}

// placed notes a place that was confirmed by a request sent then, and returns the
// grant if nothing is before it.
func (c *client) placed(
	ctx context.Context, r *record, req *driver.Request, s *session, created int64, v table.View, sent driver.Instant, others []table.Entry,
) (driver.Grant, error) {
	c.mu.Lock()
	r.state = queued
	r.createdLocked(created)
	r.session.Store(s)
	if p := c.places[r]; p == nil {
		c.places[r] = &place{}
	} else if v.More && p.view.Ahead > 0 {
		v.Ahead = min(v.Ahead, p.view.Ahead) // it can only be fewer
	}
	c.places[r].view = v
	c.noteAheadLocked(req.Name, v.Ahead)
	c.expireAtLocked(r, sent.Add(driver.Caps{Poll: c.poll}.PlaceLife(v.Ahead)))
	c.mu.Unlock()
	if v.Free(req) {
		return c.claimed(ctx, r, req, v.Behind)
	}
	if v.More && len(others) < v.Ahead {
		others = nil // the first of them is not known to be the holder
	}
	held := c.layout.HeldError(req, others)
	held.Ahead = v.Ahead
	return driver.Grant{}, held
}

// adopt takes over a key of the owner that this client does not know for sure: an
// answer was lost. The key is put on the lease that it should be on.
func (c *client) adopt(ctx context.Context, r *record, req *driver.Request, e *table.Entry, t term) (driver.Grant, error) {
	if e.Key != c.key(r) {
		return driver.Grant{}, c.layout.Refusal(req, []table.Entry{*e}) // of the same owner, but of another client
	}
	sent := c.clock.Now()
	s, err := c.session(ctx, t.seconds, sent.Add(-t.lasts/4))
	if err != nil {
		return driver.Grant{}, err
	}
	resp, err := c.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(e.Key), "=", e.Created),
	).Then(
		clientv3.OpPut(e.Key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(s.lease())),
		c.layout.GetBefore(req, e.Created),
	).Commit()
	if err != nil {
		return c.unanswered(r, req, s, sent, err)
	}
	if !resp.Succeeded {
		return driver.Grant{}, driver.ErrNotHeld // gone again, in the meantime
	}
	v := c.layout.Before(req, e.Key, resp.Header.Revision, resp.Responses[1].GetResponseRange())
	if !v.Free(req) {
		return c.placed(ctx, r, req, s, e.Created, v, s.sentBefore(sent), v.Entries)
	}
	return c.grant(r, req, s, e.Created, t), nil
}

// term is how long a hold is to last: a whole one its TTL, a claim two polls.
type term struct {
	seconds         int64 // of the lease that its key is on
	lasts, keyLasts time.Duration
	claim           bool
}

func (c *client) whole(req *driver.Request) term {
	return term{seconds(req.TTL + req.LockDelay), req.TTL, req.TTL + req.LockDelay, false}
}

// short is the term of a claim whose place is on a lease of so many seconds.
func (c *client) short(req *driver.Request, secs int64) term {
	lasts := min(2*c.poll, time.Duration(secs)*time.Second, req.TTL)
	return term{secs, lasts, lasts, true}
}

// grant notes a hold whose key is on its session's lease, and returns it. It is
// trusted from the sending of the request that last kept the lease alive.
func (c *client) grant(r *record, req *driver.Request, s *session, created int64, t term) driver.Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.createdLocked(created)
	r.session.Store(s)
	return c.beginLocked(r, req, t)
}

// beginLocked begins a hold whose create revision and session its record has. It is called with the
// mutex.
func (c *client) beginLocked(r *record, req *driver.Request, t term) driver.Grant {
	delete(c.places, r)
	since := r.session.Load().since
	r.state, r.claim, r.began = held, t.claim, c.clock.Now()
	c.expireAtLocked(r, since.Add(t.keyLasts))
	g := c.granted(r, req)
	g.Since, g.Valid, g.Claim = since, t.lasts, t.claim
	return g
}

// granted returns the grant of a hold, but for its time. All tokens of a create revision
// are the hold's; the grant has as many as were asked for.
func (c *client) granted(r *record, req *driver.Request) driver.Grant {
	return driver.Grant{
		Request: *req, Token: c.layout.Token(r.created), Block: min(max(req.Tokens, 1), c.layout.Block()), Handle: r,
	}
}

// claimed turns a place with nothing before it into a hold. Its time is that of the
// lease of places: nothing at the store begins when a place comes to be a hold, so
// it counts from the sending of whatever kept that lease alive last (P1). Behind says
// that others were in the queue behind the place when the store was last asked what is
// before it; that may be as long ago as the last hold before this one lasted, and nothing
// more is asked to know it better.
func (c *client) claimed(ctx context.Context, r *record, req *driver.Request, behind bool) (driver.Grant, error) {
	c.mu.Lock()
	if r.state != queued || r.session.Load().over {
		c.mu.Unlock()
		return driver.Grant{}, driver.ErrHeld
	}
	g := c.beginLocked(r, req, c.short(req, r.session.Load().seconds))
	c.mu.Unlock()
	var err error
	if now := c.clock.Now(); req.LockDelay > 0 || outlasts(req, now, now) {
		// The lease of places knows no lock-delay, and no minimum hold.
		g, err = c.collect(ctx, r, req)
	}
	g.Contended = behind
	return g, err
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
