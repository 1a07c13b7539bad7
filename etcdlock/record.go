package etcdlock

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// state is what a record's key is.
type state uint8

const (
	doubtful state = iota // a request for it got no answer
	queued                // a place in the queue
	held                  // a hold
	closed                // released, and closed until its minimum hold is over
)

// record is what the client knows of one of its keys. The lease of etcd outlives
// a single hold or place, so the client itself deletes the key when nobody has
// renewed or confirmed it for long enough; if the client has died, the lease ends.
type record struct {
	name, owner string
	token       driver.Token // the key's create revision
	session     *session
	state       state
	claim       bool           // a hold on the lease of places
	since       driver.Instant // of the last renewal or confirmation
	lasts       time.Duration  // how long a hold is valid, counted from since
	keeps       time.Duration  // how long the key stays, counted from since
	taken       driver.Instant // when a hold was granted: not before it was
	asked       int64          // value.Asked
	place       *place         // while it is queued
	expiry      due.Entry[*record]
}

// place is what is known of a place in a queue.
type place struct {
	view  view     // what was before it when the store was last asked
	waits *waiting // whoever waits at it, to be woken when it is worth nothing
}

// keep makes a record known, in place of an older one of the owner. It is called
// with the mutex.
func (c *client) keep(r *record) {
	if old := c.records[r.owner]; old != nil && old != r {
		c.forget(old)
	}
	c.records[r.owner] = r
	r.expiry.Value = r
	c.postpone(r)
}

// postpone moves a record's end to where since and keeps say. A move back costs
// nothing: the alarm looks again when it rings.
func (c *client) postpone(r *record) {
	if at := r.since.Add(r.keeps); !r.expiry.Queued() || at < r.expiry.At() {
		c.expiries.Set(&r.expiry, at)
		c.alarm.Set(at)
	}
}

// forget forgets a record, and wakes whoever waits at its place. It is called
// with the mutex.
func (c *client) forget(r *record) {
	if c.records[r.owner] == r {
		delete(c.records, r.owner)
	}
	c.expiries.Drop(&r.expiry)
	if r.place != nil && r.place.waits != nil {
		r.place.waits.wake()
	}
}

// lapsed reports whether a hold has ended although its key may still be there.
func (r *record) lapsed(now driver.Instant) bool { return now >= r.since.Add(r.lasts) }

// sweep deletes the keys whose time is over. The alarm calls it.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	var over []*record
	for e := c.expiries.First(); e != nil && e.At() <= now; e = c.expiries.First() {
		if at := e.Value.since.Add(e.Value.keeps); at > now {
			c.expiries.Set(e, at)
			continue
		}
		over = append(over, e.Value)
		c.forget(e.Value)
	}
	if e := c.expiries.First(); e != nil {
		c.alarm.Set(e.At())
	}
	if over != nil && !c.isClosed {
		c.background.Go(func() { c.remove(over) })
	}
}

// maxOps is how many operations etcd takes in one transaction, as it is set up by
// default.
const maxOps = 128

// remove deletes keys until the store confirms it, or their leases have ended.
func (c *client) remove(records []*record) {
	for len(records) > 0 {
		batch := records[:min(maxOps, len(records))]
		var ops []clientv3.Op
		for _, r := range batch {
			ops = append(ops, clientv3.OpDelete(c.layout.key(r.name, r.owner)))
		}
		ctx, cancel := c.bounded(c.life)
		_, err := c.kv.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil && c.leaseLives(batch) && sleep(c.life, removePause) {
			continue
		}
		records = records[len(batch):]
	}
}

// removePause is the time between two attempts to delete keys.
const removePause = 200 * time.Millisecond

// leaseLives reports whether the store may still have one of the keys.
func (c *client) leaseLives(records []*record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	for _, r := range records {
		if r.session != nil && !r.session.over && !r.session.ended(now) {
			return true
		}
	}
	return false
}

// drop forgets a record whose key is gone.
func (c *client) drop(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(r)
}
