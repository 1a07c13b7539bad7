package etcdlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// state is what a record's key is.
type state uint8

const (
	asking   state = iota // a request to put it is under way
	doubtful              // nobody knows whether it is there, or it is to go
	leaving               // its time was over, or it was of no use, and it is being deleted
	queued                // a place in the queue
	held                  // a hold
	closed                // released, and closed until its minimum hold is over
)

// record is what the client knows of one of its keys. The lease of etcd outlives a single hold or place, so the
// client itself deletes the key when nobody has renewed or confirmed it for long enough; if the client has died, the
// lease ends. What changes is guarded by the client's mutex.
type record struct {
	name, owner string
	created     int64                   // the key's create revision; 0: not known
	session     atomic.Pointer[session] // nil: no request to put it has been answered, or may have been done
	minimum     *session                // the lease of its minimum hold; nil: none. See fixedFor
	place       *place                  // of one that is queued
	began       driver.Instant          // when it was asked for, and of a hold when it was granted: not before it was
	trusted     driver.Instant          // until when a hold lasts unless it is renewed
	until       driver.Instant          // how long the key stays unless it is renewed or confirmed; 0: not limited
	n           int32                   // of the key: see layout.key
	asks        int16                   // requests to put or confirm it that are under way
	state       state
	claim       bool // a hold on the lease of places
}

// place is what is known of a place in a queue.
type place struct {
	view  table.View // what was before it when the store was last asked
	waits *waitCall  // the call of Wait at it, to be woken when the place is worth nothing
}

// index is a client's records by their names.
type index map[string][]*record

// all returns all records, in no order. None may be added or removed during that.
func (x index) all() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, some := range x {
			for _, r := range some {
				if !yield(r) {
					return
				}
			}
		}
	}
}

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

// Enqueue implements driver.Queuer. A place is a key on the lease of places, which is short, so that a client that
// has died delays nobody for long (P7); a hold that comes out of it is a claim until it is renewed.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.reserve(&req)
	defer c.unreserve(r)
	switch state, _ := c.stateOf(r); state {
	case leaving:
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	case held:
		return c.collect(ctx, c.granted(r, &req))
	case queued:
		g, err := c.confirm(ctx, r, &req)
		if !errors.Is(err, errGone) {
			return g, err
		}
		r = c.reserve(&req)
		defer c.unreserve(r)
	}
	return c.line(ctx, r, &req)
}

// line takes a place at the end of the queue, unless the owner has a key, or a tombstone. What was before the place is
// read in the same transaction.
func (c *client) line(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	key, dir := c.key(r), c.layout.Dir(req.Name)
	absent := func(key string) *etcdserverpb.Compare {
		return table.CompareCreated([]byte(key), nil, etcdserverpb.Compare_EQUAL, 0)
	}
	for {
		sent := c.clock.Now()
		s, err := c.session(ctx, c.minSeconds, sent.Add(-pulse(c.minSeconds)))
		if err != nil {
			return driver.Grant{}, err
		}
		stop := s.beating(ctx)
		resp, err := c.main.txn(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{absent(c.layout.Tombstone(req.Owner)), absent(key)},
			Success: append(c.layout.GetInUse(req), table.PutOp([]byte(key), c.text(r, req), s.id)),
			Failure: []*etcdserverpb.RequestOp{table.RangeOp([]byte(key), nil, 0)},
		})
		stop()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.end(s)
			continue // refused for certain, so it may be asked again
		case err != nil:
			return c.unanswered(r, req, s, sent, err)
		case !resp.Succeeded:
			own := c.layout.ParseEntries(dir, resp.Responses[0].GetResponseRange().Kvs)
			if e := table.Find(own, req.Owner, key); e != nil {
				return c.adopt(ctx, r, req, e)
			}
			if len(own) > 0 {
				return driver.Grant{}, errors.New("etcd still has the key of a hold that has ended")
			}
			return driver.Grant{}, driver.ErrNotHeld // it was withdrawn before it arrived
		}
		in, created := c.layout.ReadInUse(dir, resp.Responses), resp.Header.Revision
		if err := c.layout.Mismatch(req, in.Entries); err != nil {
			return c.takeBack(ctx, r, req, s, sent, created, err)
		}
		return c.placed(ctx, r, req, s, created, in.Before(req, created), s.sentBefore(sent), in.Entries)
	}
}

// errGone says that a place or a hold is not there any more.
var errGone = errors.New("the key is gone")

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

// confirm gives a place's sign of life, and reads whether it has become a hold.
func (c *client) confirm(ctx context.Context, r *record, req *driver.Request) (driver.Grant, error) {
	sent, s := c.clock.Now(), r.session.Load()
	since, err := s.refresh(ctx, sent.Add(-min(s.pulse(), c.caps.Poll))) // a claim counts from there
	if errors.Is(err, errOver) {
		c.forget(r, c.forgetUnsureLocked)
		return driver.Grant{}, errGone
	} else if err != nil {
		return driver.Grant{}, err
	}
	var last table.View
	c.mu.Lock()
	if r.place != nil {
		last = r.place.view
	}
	c.mu.Unlock()
	v, err := c.look(ctx, r, req, last, 0, true)
	if errors.Is(err, driver.ErrHeld) {
		return driver.Grant{}, errGone
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return c.placed(ctx, r, req, s, r.created, v, min(sent, since), v.Entries)
}

// placed notes a place that was confirmed by a request sent then, and returns the grant if nothing is before it.
func (c *client) placed(
	ctx context.Context, r *record, req *driver.Request, s *session, created int64, v table.View, sent driver.Instant, others []table.Entry,
) (driver.Grant, error) {
	c.mu.Lock()
	r.state = queued
	r.putLocked(s, created)
	if r.place == nil {
		r.place = &place{}
	} else if v.More && r.place.view.Ahead > 0 {
		v.Ahead = min(v.Ahead, r.place.view.Ahead) // it can only be fewer
	}
	r.place.view = v
	c.expireAtLocked(r, sent.Add(c.caps.PlaceLife(v.Ahead)))
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

// claimLasts is how long a claim lasts that comes out of a place.
func (c *client) claimLasts(r *record, req *driver.Request) time.Duration {
	return min(2*c.caps.Poll, time.Duration(r.session.Load().seconds)*time.Second, req.TTL)
}

// claimed turns a place with nothing before it into a hold. Its time is that of the lease of places: nothing at the
// store begins when a place comes to be a hold, so it counts from the sending of whatever kept that lease alive last
// (P1). Behind says that others were in the queue behind the place when the store was last asked what is before it;
// that may be as long ago as the last hold before this one lasted, and nothing more is asked to know it better.
func (c *client) claimed(ctx context.Context, r *record, req *driver.Request, behind bool) (driver.Grant, error) {
	c.mu.Lock()
	if r.state != queued || r.session.Load().over {
		c.mu.Unlock()
		return driver.Grant{}, driver.ErrHeld
	}
	g := c.beginLocked(r, req, c.claimLasts(r, req), 0)
	r.claim, g.Claim = true, true
	c.mu.Unlock()
	var err error
	if now := c.clock.Now(); req.LockDelay > 0 || outlasts(req, now, now) {
		// The lease of places knows no lock-delay, and no minimum hold.
		g, err = c.collect(ctx, c.granted(r, req))
	}
	g.Contended = behind
	return g, err
}

// look returns what is before a place, as it was at that revision or later, or as it is now if that is 0; and ErrHeld
// if the place is gone. Check says that all that was in the way may still be there, which costs less to ask for.
func (c *client) look(ctx context.Context, r *record, req *driver.Request, last table.View, since int64, check bool) (table.View, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	defer r.session.Load().beating(ctx)()
	if check && len(last.Entries) > 0 && req.Mode == driver.Exclusive {
		if v, ok, err := c.still(ctx, r, last, since); ok || err != nil {
			return v, err
		}
	}
	return c.readView(ctx, r, req, since)
}

// still returns the view of an exclusive request's place if all that it has in the way is still there. To etcd that
// is little work however many wait, while a read goes through all keys of the name. Entries before the place only go,
// so nothing has come in between. The member asked answers by itself.
func (c *client) still(ctx context.Context, r *record, v table.View, since int64) (table.View, bool, error) {
	txn := &etcdserverpb.TxnRequest{}
	for _, e := range append([]table.Entry{{Key: c.key(r), Created: r.created}}, v.Entries...) {
		txn.Compare = append(txn.Compare, table.CompareCreated([]byte(e.Key), nil, etcdserverpb.Compare_EQUAL, e.Created))
	}
	// Others may have come since: who is next tells its client whether (driver.Grant.Contended).
	counts := !v.More && !c.layout.Stock
	if counts {
		count := table.Read(c.layout.Dir(r.name))
		count.CountOnly, count.Serializable = true, true
		txn.Success = []*etcdserverpb.RequestOp{table.Op(count)}
	}
	resp, err := c.main.txn(ctx, txn)
	if err != nil || !resp.Succeeded || resp.Header.Revision < since {
		return v, false, err
	}
	if counts {
		v.Behind = resp.Responses[0].GetResponseRange().GetCount() > int64(len(v.Entries)+1)
	}
	v.Rev = max(v.Rev, resp.Header.Revision)
	return v, true, nil
}

// readView reads what is before a place. The member asked answers by itself if it has come as
// far as since: what a majority has agreed on it must not ask again.
func (c *client) readView(ctx context.Context, r *record, req *driver.Request, since int64) (table.View, error) {
	ask := c.layout.GetBefore(req, r.created)
	for ask.Serializable = since > 0; ; ask.Serializable = false {
		read, err := c.main.get(ctx, ask)
		if err != nil {
			return table.View{}, err
		}
		v, own := c.layout.Before(req, c.key(r), r.created, read)
		if ask.Serializable && v.Rev < max(since, r.created) {
			continue
		}
		if !own {
			c.forget(r, c.forgetLocked)
			return v, driver.ErrHeld
		}
		return v, nil
	}
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

// recordLocked returns the record of an owner, or nil.
func (c *client) recordLocked(name, owner string) *record {
	for _, r := range c.records[name] {
		if r.owner == owner {
			return r
		}
	}
	return nil
}

// isKnownLocked reports whether a record has not been forgotten.
func (c *client) isKnownLocked(r *record) bool { return slices.Contains(c.records[r.name], r) }

func (c *client) addLocked(r *record) {
	c.records[r.name] = append(c.records[r.name], r)
	c.most = max(c.most, len(c.records))
}

// reserve returns the owner's record, made if there is none, with a key that
// nobody else of this client uses. Unreserve ends the request that it is for.
func (c *client) reserve(req *driver.Request) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.recordLocked(req.Name, req.Owner)
	if r == nil {
		r = &record{name: req.Name, owner: req.Owner, began: c.clock.Now(), n: c.firstN}
		for slices.ContainsFunc(c.records[req.Name], func(other *record) bool { return other.n == r.n }) {
			r.n++
		}
		c.addLocked(r)
	}
	r.asks++
	return r
}

func (c *client) unreserve(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.asks--; r.asks == 0 && r.state == asking {
		c.forgetLocked(r)
	}
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

// key returns the record's key.
func (c *client) key(r *record) string { return c.layout.Key(r.name, c.id, r.n) }

// text returns the value of the key that a request puts.
func (c *client) text(r *record, req *driver.Request) string {
	return c.layout.Text(c.layout.NewValue(req, c.id, c.asked(r)))
}

// asked is value.Asked of the record's key.
func (c *client) asked(r *record) int64 {
	return time.Now().Add(-c.clock.Now().Sub(r.began)).UnixMilli()
}

// expireAtLocked sets when a record's key is deleted unless it is renewed or confirmed. A record that was forgotten
// while the request was under way is known again: its key must be deleted in time all the same.
func (c *client) expireAtLocked(r *record, until driver.Instant) {
	if !c.isKnownLocked(r) {
		c.addLocked(r)
	}
	r.until = until
	c.timer.Set(until)
}

// forgetLocked forgets a record whose key is not there, and wakes the call of Wait at its place.
func (c *client) forgetLocked(r *record) {
	some := slices.DeleteFunc(c.records[r.name], func(other *record) bool { return other == r })
	if c.records[r.name] = some; len(some) == 0 {
		delete(c.records, r.name)
		if len(c.records) == 0 && c.most > 1000 {
			c.records, c.most = index{}, 0 // a map does not shrink (P9)
		}
	}
	r.state = doubtful
	r.wakeLocked()
	r.place = nil
}

// forgetUnsureLocked forgets a record whose lease has ended here, at the store perhaps a little
// later. Its key may still be there, so its number is not used again.
func (c *client) forgetUnsureLocked(r *record) {
	c.firstN = max(c.firstN, r.n+1)
	c.forgetLocked(r)
}

// forget forgets a record that is known.
func (c *client) forget(r *record, how func(*record)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isKnownLocked(r) {
		how(r)
	}
}

// wakeLocked wakes the call of Wait at the place.
func (r *record) wakeLocked() {
	if r.place != nil && r.place.waits != nil {
		wake(r.place.waits.news)
	}
}

// wake leaves a value in a channel that has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
