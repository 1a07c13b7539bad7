package zklock

import (
	"context"
	"math"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// state is what an owner's request has come to.
type state uint8

const (
	asking   state = iota // it has no node
	doubtful              // nobody knows whether it has one, or the one that it has is to go
	queued                // a place in the queue
	held                  // a hold
)

// record is what the client knows of one owner's request. The session outlives a single hold or place,
// so the client itself deletes the node when nobody has renewed or confirmed it for long enough; if the
// client has died, the session ends.
type record struct {
	name, owner string
	guid        guid
	busy        chan struct{} // holds a value while somebody asks the store for this owner

	// Written by who has busy, under the client's mutex; who has either may read.
	state      state
	session    *session // of its nodes, which it is a user of; nil: none
	strays     *session // an earlier one, ended, in which a node may be left
	strayKnown bool     // that is the node of a place, and no request for another is on its way
	mode       driver.Mode
	downgraded bool // the node's data says the token too
	lockDelay  time.Duration
	nodes      []string // paths: of a hold or a place; of a semaphore's hold one for each permit
	spare      []string // the node that it may have in place of that: a downgrade has not been answered
	token      driver.Token
	claim      bool           // a hold that the queue has granted, and nobody has renewed
	until      driver.Instant // how long the nodes stay unless it is renewed or confirmed; 0: not limited
	place      *place         // of one that is queued

	// Of a hold, guarded by the client's mutex.
	watch   *zk.Watch // on its nodes; nil: none yet
	watched bool      // all of them are watched, and nothing has happened
	events  int       // how often the watch was told something
}

// place is what is known of a place in a queue.
type place struct {
	watch   *zk.Watch
	blocker string        // path of the node that it waits for; "": to be looked for
	leases  bool          // that is where a semaphore's leases are, and the watch is on its children
	armed   bool          // the watch is set, though it may have been told something
	ahead   int           // how many are before it
	news    chan struct{} // a value: the place may be worth nothing any more
}

type ownerKey struct{ name, owner string }

// reserve returns the owner's record, made if there is none, for the caller alone until unreserve.
func (c *client) reserve(ctx context.Context, name, owner string) (*record, error) {
	for {
		r := c.record(name, owner)
		if err := r.lock(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		known := c.records[ownerKey{name, owner}] == r
		c.mu.Unlock()
		if known {
			return r, nil
		}
		<-r.busy // it was forgotten while this one waited
	}
}

func (r *record) lock(ctx context.Context) error {
	select {
	case r.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record returns the owner's record, made if there is none.
func (c *client) record(name, owner string) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := ownerKey{name, owner}
	r := c.records[key]
	if r == nil {
		r = &record{name: name, owner: owner, guid: guidOf(owner), busy: make(chan struct{}, 1)}
		c.records[key] = r
		c.mostRecords = max(c.mostRecords, len(c.records))
	}
	return r
}

// unreserve ends what reserve began.
func (c *client) unreserve(r *record) {
	c.mu.Lock()
	switch {
	case r.state == asking && r.strays == nil:
		c.forgetLocked(r)
	case r.until == 0: // strays are left
		c.expireAtLocked(r, c.clock.Now().Add(requestWithin))
	}
	c.mu.Unlock()
	<-r.busy
}

// known returns the owner's record, or nil.
func (c *client) known(name, owner string) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[ownerKey{name, owner}]
}

// forgetLocked forgets a record, of which nothing is left in the store.
func (c *client) forgetLocked(r *record) {
	c.leavePlaceLocked(r)
	r.state, r.strays = asking, nil
	c.moveLocked(r, nil)
	key := ownerKey{r.name, r.owner}
	if c.records[key] == r {
		delete(c.records, key)
	}
	if len(c.records) == 0 && c.mostRecords > 1000 {
		c.records, c.mostRecords = map[ownerKey]*record{}, 0 // a map does not shrink (P9)
	}
}

// moveLocked makes s, of which the record is a user already, the session of the record's nodes.
func (c *client) moveLocked(r *record, s *session) {
	if r.session != nil {
		r.session.leaveLocked()
	}
	r.session, r.nodes, r.spare, r.token, r.watch, r.watched, r.claim, r.until, r.downgraded = s, nil, nil, 0, nil, false, false, 0, false
}

// leavePlaceLocked ends the waiting at a record's place.
func (c *client) leavePlaceLocked(r *record) {
	p := r.place
	if p == nil {
		return
	}
	r.place = nil
	p.wake()
	if !r.session.trust.Over {
		r.session.zk.Unwatch(p.watch)
	}
}

func (p *place) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// wakeLocked wakes the call of Wait at the record's place.
func (r *record) wakeLocked() {
	if r.place != nil {
		r.place.wake()
	}
}

// doubt notes that the outcome of the request that is under way is not known.
func (c *client) doubt(r *record, t term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(r)
	r.state = doubtful
	c.expireAtLocked(r, c.clock.Now().Add(t.session))
}

// expireAtLocked sets when a record's nodes are deleted unless it is renewed or confirmed.
func (c *client) expireAtLocked(r *record, until driver.Instant) {
	r.until = until
	c.timer.Set(until)
}

// sweep deletes the nodes whose time is over, and closes sessions that nobody uses. The timer calls it.
// It visits all records, and not often: a hold is renewed, and a place confirmed, long before its time is
// over.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	next := driver.Instant(math.MaxInt64)
	fresh := c.fresh
	c.fresh = nil
	for _, r := range fresh {
		if r.state == held && !r.watched {
			c.lookSoonLocked(r)
		}
	}
	for _, r := range c.records {
		switch {
		case r.until == 0:
			continue
		case r.until > now:
			next = min(next, r.until)
			continue
		}
		select {
		case r.busy <- struct{}{}:
			if !c.isClosed {
				c.background.Go(func() { c.remove(r) })
			}
		default: // what is under way may be its sign of life
			next = min(next, now.Add(sweepPause))
		}
	}
	for timeout, s := range c.sessions {
		if s.isOpenLocked() {
			if used, ok := s.forgetDirectoriesLocked(now.Add(-idleFor)); ok {
				next = min(next, used.Add(idleFor))
			}
		}
		switch {
		case s.users > 0 || !s.isOpenLocked():
		case s.unused.Add(idleFor) > now:
			next = min(next, s.unused.Add(idleFor))
		default:
			delete(c.sessions, timeout)
			s.trust.End()
			if !c.isClosed {
				c.background.Go(func() { s.close() })
			}
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
}

// watchAfter is how long after its grant a hold's nodes are watched, at most: many are together then, and
// most holds are over.
const watchAfter = 250 * time.Millisecond

// sweepPause is the time between two sweeps, at least, and between two attempts to delete a node.
const sweepPause = 50 * time.Millisecond

// remove deletes the nodes of a record, which the caller has reserved, until the store confirms it or
// their session has ended.
func (c *client) remove(r *record) {
	defer func() { <-r.busy }()
	for {
		ctx, cancel := context.WithTimeout(c.life, requestWithin)
		err := c.withdraw(ctx, r, nil)
		cancel()
		c.mu.Lock()
		if err == nil || r.session == nil || r.session.trust.Over {
			c.forgetLocked(r)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if !sleep(c.life, sweepPause) {
			return
		}
	}
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
