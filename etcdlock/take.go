package etcdlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

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
	n           int32                   // of the key: see Layout.Key
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

// call is one call that asks for a hold, or waits for it, with its owner's record.
type call struct {
	c   *client
	r   *record
	req *driver.Request
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
	g, err := c.try(ctx, &req)
	return c.begun(ctx, g, err)
}

func (c *client) try(ctx context.Context, req *driver.Request) (driver.Grant, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	a, state, again := c.reserve(req)
	defer c.unreserve(a.r)
	if state == leaving {
		return driver.Grant{}, driver.ErrNotHeld // it has just ended
	}
	key, text, limit := c.key(a.r), a.text(), c.layout.Fewest(req)
	if again {
		limit = 0 // its own key is to be found
	}
	for seen, round := int64(0), 0; round < maxReads; round++ {
		sent := c.clock.Now()
		// A hold that nobody renews lasts almost its whole TTL from here.
		s, err := c.session(ctx, holdSeconds(req), sent.Add(-req.TTL/16))
		if err != nil {
			return driver.Grant{}, err
		}
		resp, err := c.main.txn(ctx, c.layout.Take(req.Name, req.Owner, key, text, s.id, seen, limit))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.end(s)
			continue // refused for certain, so it may be asked again
		}
		if err != nil {
			return a.unanswered(s, sent, err)
		}
		if resp.Succeeded {
			return a.grant(s, resp.Header.Revision), nil
		}
		if own, err := c.layout.NotTaken(req, key, seen, resp); own != nil {
			return a.adopt(ctx, own.Created)
		} else if err != nil {
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
	a, state, _ := c.reserve(&req)
	defer c.unreserve(a.r)
	g, err := a.enqueue(ctx, state)
	return c.begun(ctx, g, err)
}

// enqueue goes on with what there is of the request, or takes a place.
func (a call) enqueue(ctx context.Context, state state) (driver.Grant, error) {
	switch state {
	case leaving:
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	case held:
		return a.granted(), nil
	case queued:
		g, err := a.confirm(ctx)
		if !errors.Is(err, errGone) {
			return g, err
		}
		a, _, _ = a.c.reserve(a.req)
		defer a.c.unreserve(a.r)
	}
	return a.line(ctx)
}

// line takes a place at the end of the queue, unless the owner has a key, or a tombstone.
func (a call) line(ctx context.Context) (driver.Grant, error) {
	c, key, text := a.c, a.c.key(a.r), a.text()
	for {
		sent := c.clock.Now()
		s, err := c.session(ctx, c.minSeconds, sent.Add(-pulse(c.minSeconds)))
		if err != nil {
			return driver.Grant{}, err
		}
		stop := s.beating(ctx)
		resp, err := c.main.txn(ctx, c.layout.Place(a.req, key, text, s.id))
		stop()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.end(s)
			continue // refused for certain, so it may be asked again
		case err != nil:
			return a.unanswered(s, sent, err)
		case !resp.Succeeded:
			own, err := c.layout.NotPlaced(a.req, key, resp)
			if own != nil {
				return a.adopt(ctx, own.Created)
			}
			return driver.Grant{}, err
		}
		v, others, err := c.layout.Placed(a.req, resp)
		if err != nil {
			return a.takeBack(ctx, s, sent, v.Rev, err)
		}
		return a.placed(s, v.Rev, v, s.sentBefore(sent), others)
	}
}

// errGone says that a place or a hold is not there any more.
var errGone = errors.New("the key is gone")

// takeBack takes a key back that is no use, and returns why. If that gets no answer, it may arrive late. An owner
// that asked again would get the same key as its hold, which the late request would then end (P1). So the owner is
// refused from then on: package holdfast withdraws it, and asks under another.
func (a call) takeBack(ctx context.Context, s *session, sent driver.Instant, created int64, why error) (driver.Grant, error) {
	_, err := a.c.main.txn(ctx, table.Remove([]table.Removal{{Key: a.c.key(a.r), Created: created}}, 0))
	if err == nil {
		return driver.Grant{}, why
	}
	return a.uncertain(s, sent, leaving, err)
}

// adopt takes over a key of the owner of which this client did not know for sure: an answer was lost. It is confirmed like
// a place, on the lease that it was put on.
func (a call) adopt(ctx context.Context, created int64) (driver.Grant, error) {
	s := a.r.session.Load()
	if s == nil { // the key is of another request
		return driver.Grant{}, &driver.HeldError{Name: a.req.Name}
	}
	a.c.mu.Lock()
	a.r.state = queued
	a.r.putLocked(s, created)
	a.c.mu.Unlock()
	g, err := a.confirm(ctx)
	if errors.Is(err, errGone) {
		err = driver.ErrNotHeld
	}
	return g, err
}

// confirm gives a place's sign of life, and reads whether it has become a hold.
func (a call) confirm(ctx context.Context) (driver.Grant, error) {
	c, r := a.c, a.r
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
	v, err := a.look(ctx, last, 0, true)
	if errors.Is(err, driver.ErrHeld) {
		return driver.Grant{}, errGone
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return a.placed(s, r.created, v, min(sent, since), v.Entries)
}

// placed notes a place that was confirmed by a request sent then, and returns the grant if nothing is before it.
func (a call) placed(s *session, created int64, v table.View, sent driver.Instant, others []table.Entry) (driver.Grant, error) {
	c, r := a.c, a.r
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
	if v.Free(a.req) {
		return a.claimed(v.Behind)
	}
	if v.More && len(others) < v.Ahead {
		others = nil // the first of them is not known to be the holder
	}
	held := c.layout.HeldError(a.req, others)
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
func (a call) claimed(behind bool) (driver.Grant, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.r.state != queued || a.r.session.Load().over {
		return driver.Grant{}, driver.ErrHeld
	}
	g := a.beginLocked(a.c.claimLasts(a.r, a.req), 0)
	a.r.claim, g.Claim, g.Contended = true, true, behind
	return g, nil
}

// look returns what is before a place, as it was at that revision or later, or as it is now if that is 0; and ErrHeld
// if the place is gone. Check says that all that was in the way may still be there, which costs less to ask for. The
// member asked answers by itself if it has come as far as since: what a majority has agreed on it must not ask again.
func (a call) look(ctx context.Context, last table.View, since int64, check bool) (table.View, error) {
	c, key, created := a.c, a.c.key(a.r), a.r.created
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	defer a.r.session.Load().beating(ctx)()
	if check && len(last.Entries) > 0 && a.req.Mode == driver.Exclusive {
		resp, err := c.main.txn(ctx, c.layout.Still(a.req.Name, key, created, &last))
		if err != nil {
			return table.View{}, err
		}
		if resp.Succeeded && resp.Header.Revision >= since {
			return last.Still(resp), nil
		}
	}
	ask := c.layout.GetBefore(a.req, created)
	for ask.Serializable = since > 0; ; ask.Serializable = false {
		read, err := c.main.get(ctx, ask)
		if err != nil {
			return table.View{}, err
		}
		v, own := c.layout.Before(a.req, key, created, read)
		switch {
		case ask.Serializable && v.Rev < max(since, created):
			continue
		case !own:
			c.forget(a.r, c.forgetLocked)
			return v, driver.ErrHeld
		}
		return v, nil
	}
}

// begun returns a grant for its holder to begin with. It is renewed before if its owner has had the hold already, or if its
// key is not on the lease that it needs: that of places knows no lock-delay, and none of many holds a minimum hold.
func (c *client) begun(ctx context.Context, g driver.Grant, err error) (driver.Grant, error) {
	now := c.clock.Now()
	if err != nil || g.Valid != 0 && !(g.Claim && g.LockDelay > 0) && !outlasts(&g.Request, now, now) {
		return g, err
	}
	renewed, err := c.collect(ctx, g)
	if err != nil && !driver.Gone(err) {
		return driver.Grant{Request: g.Request}, driver.Uncertain(err)
	}
	renewed.Claim = false
	return renewed, err
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

// reserve begins a call. The owner's record is made if there is none, with a key that nobody else of this client uses.
// It returns what the key is, and whether an earlier request may have put it. Unreserve ends the call.
func (c *client) reserve(req *driver.Request) (a call, s state, mayBeThere bool) {
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
	return call{c, r, req}, r.state, r.state != asking || r.asks > 1
}

func (c *client) unreserve(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.asks--; r.asks == 0 && r.state == asking {
		c.forgetLocked(r)
	}
}

// grant notes a hold whose key is on its session's lease, and returns it. It is trusted from the sending of the request
// that last kept the lease alive.
func (a call) grant(s *session, created int64) driver.Grant {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.r.putLocked(s, created)
	return a.beginLocked(a.req.TTL, a.req.LockDelay)
}

// beginLocked begins a hold whose create revision and session its record has. Its key stays for the delay after that.
func (a call) beginLocked(lasts, delay time.Duration) driver.Grant {
	c, r := a.c, a.r
	r.place = nil
	since := r.session.Load().since
	r.state, r.claim, r.began = held, false, c.clock.Now()
	r.trusted = since.Add(lasts)
	c.expireAtLocked(r, r.trusted.Add(delay))
	g := a.granted()
	g.Since, g.Valid = since, lasts
	return g
}

// granted returns the grant of a hold, but for its time. All tokens of a create revision are the hold's; the grant has as
// many as were asked for.
func (a call) granted() driver.Grant {
	token, block := a.c.layout.Token(a.r.created), min(max(a.req.Tokens, 1), a.c.layout.Block())
	return driver.Grant{Request: *a.req, Token: token, Block: block, Handle: a.r}
}

// putLocked notes where a record's key is, and when it was created. Those who confirm the same place together all
// know that, and read it without the lock, so it is written only if it is another one.
func (r *record) putLocked(s *session, created int64) {
	r.session.Store(s)
	if r.created != created {
		r.created = created
	}
}

// unanswered returns the error of a request to put a key. Unless the store has refused it, the key may be there.
func (a call) unanswered(s *session, sent driver.Instant, err error) (driver.Grant, error) {
	if refused(err) {
		return driver.Grant{}, err
	}
	return a.uncertain(s, sent, doubtful, err)
}

// uncertain keeps in mind that the key may be there, and returns the error.
func (a call) uncertain(s *session, sent driver.Instant, now state, err error) (driver.Grant, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.r.state == asking {
		a.r.session.Store(s)
		a.c.expireAtLocked(a.r, sent.Add(a.req.TTL+a.req.LockDelay))
	}
	if a.r.state == asking || a.r.state == doubtful {
		a.r.state = now
	}
	return driver.Grant{Request: *a.req}, driver.Uncertain(err)
}

// text returns the value of the key that a request puts.
func (a call) text() string {
	return a.c.layout.Text(a.c.layout.NewValue(a.req, a.c.id, a.c.asked(a.r)))
}

// key returns the record's key.
func (c *client) key(r *record) string { return c.layout.Key(r.name, c.id, r.n) }

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
