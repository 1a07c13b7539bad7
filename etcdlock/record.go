package etcdlock

import (
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

// record is what the client knows of one of its keys. The lease of etcd outlives
// a single hold or place, so the client itself deletes the key when nobody has
// renewed or confirmed it for long enough; if the client has died, the lease ends.
// What changes is guarded by the client's mutex.
type record struct {
	name, owner string
	next        *record                 // of the same list of the index
	created     int64                   // the key's create revision; 0: not known
	session     atomic.Pointer[session] // nil: no request to put it has been answered, or may have been done
	began       driver.Instant          // when it was asked for, and of a hold when it was granted: not before it was
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

// record returns the record of an owner, or nil. The caller has the mutex.
func (c *client) record(name, owner string) *record { return c.records.find(name, owner) }

// reserve returns the owner's record, made if there is none, with a key that
// nobody else of this client uses. Unreserve ends the request that it is for.
func (c *client) reserve(req *driver.Request) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record(req.Name, req.Owner)
	if r == nil {
		r = &record{name: req.Name, owner: req.Owner, began: c.clock.Now(), n: c.freeN(req.Name)}
		c.records.add(r)
	}
	r.asks++
	return r
}

// freeN returns the least number that a key of a name may have beside those there are.
func (c *client) freeN(name string) int32 {
	used := make([]bool, 0, 8)
	for range c.records.named(name) {
		used = append(used, false)
	}
	for r := range c.records.named(name) {
		if n := r.n - c.firstN; n >= 0 && int(n) < len(used) {
			used[n] = true
		}
	}
	if n := slices.Index(used, false); n >= 0 {
		return c.firstN + int32(n)
	}
	return c.firstN + int32(len(used))
}

func (c *client) unreserve(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.asks--; r.asks == 0 && r.state == asking {
		c.forgetLocked(r)
	}
}

// key returns the record's key.
func (c *client) key(r *record) string { return c.layout.Key(r.name, c.id, r.n) }

// expireAtLocked sets when a record's key is deleted unless it is renewed or confirmed. A
// record that was forgotten while the request was under way is known again: its key must
// be deleted in time all the same.
func (c *client) expireAtLocked(r *record, until driver.Instant) {
	c.records.add(r)
	r.until = until
	c.timer.Set(until)
}

// forgetLocked forgets a record, and wakes the call of Wait at its place.
func (c *client) forgetLocked(r *record) {
	c.records.remove(r)
	r.state = doubtful
	c.wakeLocked(r)
	delete(c.places, r)
	delete(c.minimums, r)
}

// isKnownLocked reports whether a record has not been forgotten.
func (c *client) isKnownLocked(r *record) bool { return c.record(r.name, r.owner) == r }

// mayBeThere reports whether an earlier request may have put the record's key.
func (c *client) mayBeThere(r *record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.state != asking || r.asks > 1
}

// isLeaving reports whether a record's key is being deleted without its owner's asking.
func (c *client) isLeaving(r *record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.state == leaving
}

// wakeLocked wakes the call of Wait at the place.
func (c *client) wakeLocked(r *record) {
	if p := c.places[r]; p != nil && p.waits != nil {
		p.waits.wake()
	}
}

// lapsed reports whether a hold has ended although its key may still be there: that
// of a claim goes at once, that of a whole hold stays for the lock-delay.
func (r *record) lapsed(now driver.Instant, delay time.Duration) bool {
	if s := r.session.Load(); s != nil && s.fixed {
		return now >= s.trusted
	}
	if r.claim {
		delay = 0
	}
	return now >= r.until.Add(-delay)
}

// asked is value.Asked of the record's key.
func (c *client) asked(r *record) int64 {
	return time.Now().Add(-c.clock.Now().Sub(r.began)).UnixMilli()
}

// sweep deletes the keys whose time is over. The timer calls it. It visits all records,
// and not often: a hold is renewed, and a place confirmed, long before its
// time is over, so the first that may be over the next time is far away, as a rule. A
// queue of them by their times would take a third of a record's memory.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	var over []*record
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
			c.wakeLocked(r)
			over = append(over, r)
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
	if over != nil && !c.isClosed {
		c.background.Go(func() { c.remove(over) })
	}
}

// remove deletes keys until the store confirms it, or their leases have ended.
// Only then they are used again.
func (c *client) remove(records []*record) {
	for {
		grants := make([]driver.Grant, len(records))
		for i, r := range records {
			grants[i] = driver.Grant{Request: driver.Request{Name: r.name, Owner: r.owner}, Token: max(c.layout.Token(r.created), 1)}
		}
		ctx, cancel := c.bounded(c.life)
		errs := c.deleteKeys(ctx, grants)
		cancel()
		var left []*record
		c.mu.Lock()
		now := c.clock.Now()
		for i, r := range records {
			gone := errs[i] == nil || driver.Gone(errs[i])
			if s := r.session.Load(); !gone && s != nil && !s.over && !s.ended(now) {
				left = append(left, r)
				continue
			}
			if !gone { // its lease has ended here, at the store perhaps a little later
				c.firstN = max(c.firstN, r.n+1)
			}
			c.forgetLocked(r)
		}
		c.mu.Unlock()
		if records = left; len(records) == 0 || !sleep(c.life, removePause) {
			return
		}
	}
}

// The time between two attempts to delete keys, and at least between two
// sweeps.
const (
	removePause = 200 * time.Millisecond
	sweepPause  = 20 * time.Millisecond
)

// forgetUnsure forgets a record whose lease has ended here, at the store perhaps a little
// later. Its key may still be there, so its number is not used again.
func (c *client) forgetUnsure(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isKnownLocked(r) {
		c.firstN = max(c.firstN, r.n+1)
		c.forgetLocked(r)
	}
}

// forget forgets a record whose key is deleted.
func (c *client) forget(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isKnownLocked(r) {
		c.forgetLocked(r)
	}
}
