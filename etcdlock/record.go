package etcdlock

import (
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

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

// sweep deletes the keys whose time is over. The timer calls it. It visits all records, and not often: a hold is
// renewed, and a place confirmed, long before its time is over, so the first that may be over the next time is far
// away, as a rule. A queue of them by their times would take a third of a record's memory.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	var late []*record
	next := driver.Instant(math.MaxInt64)
	for r := range c.records.all() {
		switch {
		case r.until == 0:
		case r.until > now:
			next = min(next, r.until)
		case r.asks > 0: // what is under way may be its sign of life
			next = min(next, now.Add(removePause))
		default:
			r.state, r.until = leaving, 0
			r.wakeLocked()
			late = append(late, r)
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
	if late != nil && !c.isClosed {
		c.background.Go(func() { c.remove(late) })
	}
}

// remove deletes keys. Only when the store has confirmed that, or their leases have ended, they are used again.
func (c *client) remove(records []*record) {
	grants, errs, all := make([]driver.Grant, len(records)), make([]error, len(records)), make([]int, len(records))
	for i, r := range records {
		all[i] = i
		grants[i] = driver.Grant{Request: driver.Request{Name: r.name, Owner: r.owner}, Token: max(c.layout.Token(r.created), 1)}
	}
	ctx, cancel := c.bounded(c.life)
	c.deleteKeys(ctx, grants, all, errs)
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range records {
		s := r.session.Load()
		switch {
		case errs[i] == nil || driver.Gone(errs[i]):
			c.forgetLocked(r)
		case s != nil && !s.over && !s.ended():
			c.expireAtLocked(r, c.clock.Now().Add(removePause)) // the next sweep tries again
		default:
			c.forgetUnsureLocked(r)
		}
	}
}

// The time between two attempts to delete keys, and at least between two sweeps.
const (
	removePause = 200 * time.Millisecond
	sweepPause  = 20 * time.Millisecond
)
