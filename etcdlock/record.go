package etcdlock

import (
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// state is what a record's key is.
type state uint8

const (
	asking   state = iota // a request to put it is under way
	doubtful              // nobody knows whether it is there, or it is to go
	leaving               // its time was over, and it is being deleted
	queued                // a place in the queue
	held                  // a hold
	closed                // released, and closed until its minimum hold is over
)

// record is what the client knows of one of its keys. The lease of etcd outlives
// a single hold or place, so the client itself deletes the key when nobody has
// renewed or confirmed it for long enough; if the client has died, the lease ends.
// What changes is guarded by the client's mutex.
type record struct {
	c           *client
	name, owner string
	next        *record      // of the same name
	token       driver.Token // the key's create revision; 0: not known
	session     *session
	since       driver.Instant // of the last renewal or confirmation
	keeps       time.Duration  // how long the key stays, counted from since
	began       driver.Instant // when it was asked for, and of a hold when it was granted: not before it was
	place       *place         // while it is queued
	expiry      due.Entry[*record]
	n           int32 // of the key: see layout.key
	asks        int16 // requests to put or confirm it that are under way
	state       state
	claim       bool // a hold on the lease of places
}

// place is what is known of a place in a queue.
type place struct {
	view  view   // what was before it when the store was last asked
	waits *vigil // whoever waits at it, to be woken when it is worth nothing
}

// record returns the record of an owner, or nil. It is called with the mutex.
func (c *client) record(name, owner string) *record {
	for r := c.records[name]; r != nil; r = r.next {
		if r.owner == owner {
			return r
		}
	}
	return nil
}

// reserve returns the owner's record, made if there is none, with a key that
// nobody else of this client uses. Unreserve ends the request that it is for.
func (c *client) reserve(req *driver.Request) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record(req.Name, req.Owner)
	if r == nil {
		r = &record{c: c, name: req.Name, owner: req.Owner, began: c.clock.Now(), n: c.freeN(c.records[req.Name])}
		r.next = c.records[req.Name]
		c.records[req.Name] = r
	}
	r.asks++
	return r
}

// freeN returns the least number that a key may have beside those of a list.
func (c *client) freeN(list *record) int32 {
	if list == nil {
		return c.firstN
	}
	used := make([]bool, 0, 8)
	for r := list; r != nil; r = r.next {
		used = append(used, false)
	}
	for r := list; r != nil; r = r.next {
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
		c.forget(r)
	}
}

// key returns the record's key.
func (c *client) key(r *record) string { return c.layout.key(r.name, c.id, r.n) }

// postpone moves a record's end to where since and keeps say. A move back costs
// nothing: the alarm looks again when it rings.
func (c *client) postpone(r *record) {
	r.expiry.Value = r
	if at := r.since.Add(r.keeps); !r.expiry.Queued() || at < r.expiry.At() {
		c.expiries.Set(&r.expiry, at)
		c.alarm.Set(at)
	}
}

// forget forgets a record, and wakes whoever waits at its place. It is called
// with the mutex.
func (c *client) forget(r *record) {
	at := c.records[r.name]
	if at == r {
		if r.next == nil {
			delete(c.records, r.name)
		} else {
			c.records[r.name] = r.next
		}
	}
	for ; at != nil; at = at.next {
		if at.next == r {
			at.next = r.next
		}
	}
	c.expiries.Drop(&r.expiry)
	r.state = doubtful
	r.wake()
}

// known reports whether a record has not been forgotten.
func (c *client) known(r *record) bool { return c.record(r.name, r.owner) == r }

// isLeaving reports whether a record's key is being deleted because its time was over.
func (c *client) isLeaving(r *record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.state == leaving
}

// wake wakes whoever waits at the place.
func (r *record) wake() {
	if r.place != nil && r.place.waits != nil {
		r.place.waits.wake()
	}
}

// lapsed reports whether a hold has ended although its key may still be there: that
// of a claim goes at once, that of a whole hold stays for the lock-delay.
func (r *record) lapsed(now driver.Instant, delay time.Duration) bool {
	if r.claim {
		delay = 0
	}
	return now >= r.since.Add(r.keeps-delay)
}

// asked is value.Asked of the record's key.
func (c *client) asked(r *record) int64 {
	return time.Now().Add(-c.clock.Now().Sub(r.began)).UnixMilli()
}

// sweep has the keys deleted whose time is over. The alarm calls it.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	var over []*record
	for e := c.expiries.First(); e != nil && e.At() <= now; e = c.expiries.First() {
		r := e.Value
		if at := r.since.Add(r.keeps); at > now {
			c.expiries.Set(e, at)
			continue
		}
		if r.asks > 0 { // what is under way may be its sign of life
			c.expiries.Set(e, now.Add(removePause))
			continue
		}
		c.expiries.Drop(e)
		r.state = leaving
		r.wake()
		over = append(over, r)
	}
	if e := c.expiries.First(); e != nil {
		c.alarm.Set(e.At())
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
			grants[i] = driver.Grant{Request: driver.Request{Name: r.name, Owner: r.owner}, Token: max(r.token, 1)}
		}
		ctx, cancel := c.bounded(c.life)
		errs := c.expel(ctx, grants)
		cancel()
		var left []*record
		c.mu.Lock()
		now := c.clock.Now()
		for i, r := range records {
			gone := errs[i] == nil || driver.Gone(errs[i])
			if !gone && r.session != nil && !r.session.over && !r.session.ended(now) {
				left = append(left, r)
				continue
			}
			if !gone { // its lease has ended here, at the store perhaps a little later
				c.firstN = max(c.firstN, r.n+1)
			}
			c.forget(r)
		}
		c.mu.Unlock()
		if records = left; len(records) == 0 || !sleep(c.life, removePause) {
			return
		}
	}
}

// removePause is the time between two attempts to delete keys.
const removePause = 200 * time.Millisecond

// abandon forgets a record whose lease has ended here, at the store perhaps a
// little later: its number is not used again.
func (c *client) abandon(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known(r) {
		c.firstN = max(c.firstN, r.n+1)
		c.forget(r)
	}
}

// drop forgets a record whose key is gone.
func (c *client) drop(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known(r) {
		c.forget(r)
	}
}
