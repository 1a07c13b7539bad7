package zklock

import (
	"context"
	"math"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
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

// owner is what the client knows of one owner of a hold, or of a place, and of its nodes. The session outlives a
// single hold or place, so the client itself deletes the nodes when nobody has renewed or confirmed them for long
// enough; if the client has died, the session ends.
type owner struct {
	ownerKey
	guid string
	busy chan struct{} // holds a value while somebody asks the store for this owner

	// Written by who has busy, under the client's mutex; who has either may read.
	state      state
	keeper     *keeper // of the nodes; nil: none
	strays     *keeper // an earlier one, whose session has ended, in which a node may be left
	strayKnown bool    // that is the node of a place, and no request for another is on its way
	mode       driver.Mode
	lockDelay  time.Duration
	nodes      []string // paths: of a hold or a place; of a semaphore's hold one for each permit
	spare      []string // the node that there may be in place of that: a downgrade has not been answered
	token      driver.Token
	claim      bool           // a hold that the queue has granted, and nobody has renewed
	until      driver.Instant // how long the nodes stay unless they are renewed or confirmed; 0: not limited
	place      *place         // of one that is queued

	// Of a hold, guarded by the client's mutex.
	watch   *zk.Watch // on its nodes; nil: none yet
	revoked int64     // the zxid of the last Revoke that was told of
}

// ownerKey is by what the client finds an owner.
type ownerKey struct{ name, id string }

// place is what is known of a place in a queue.
type place struct {
	watch   *zk.Watch
	news    chan struct{} // a value: the watch was told something, or the place is worth nothing any more
	blocker string        // path of the node that is waited for; "": to be looked for
	leases  bool          // that is where a semaphore's leases are, and the watch is on its children
	armed   bool          // the watch is set, though it may have been told something
}

func (p *place) wake() { signal(p.news) }

// signal puts a value in a channel unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reserve returns the owner, made known if it is not, for the caller alone until unreserve.
func (c *client) reserve(ctx context.Context, name, id string) (*owner, error) {
	key := ownerKey{name, id}
	for {
		c.mu.Lock()
		o := c.owners[key]
		if o == nil {
			o = &owner{ownerKey: key, guid: guidOf(id), busy: make(chan struct{}, 1)}
			c.owners[key] = o
			c.mostOwners = max(c.mostOwners, len(c.owners))
		}
		c.mu.Unlock()
		if err := o.lock(ctx); err != nil {
			return nil, err
		}
		if c.known(name, id) == o {
			return o, nil
		}
		<-o.busy // it was forgotten while this one waited
	}
}

func (o *owner) lock(ctx context.Context) error {
	select {
	case o.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unreserve ends what reserve began.
func (c *client) unreserve(o *owner) {
	c.mu.Lock()
	switch {
	case o.state == asking && o.strays == nil:
		c.forgetLocked(o)
	case o.until == 0: // strays are left
		c.expireAtLocked(o, c.clock.Now().Add(requestWithin))
	}
	c.mu.Unlock()
	<-o.busy
}

// stateOf returns the state of an owner. Who looks at a hold in the background may find it broken.
func (c *client) stateOf(o *owner) (s state) {
	c.locked(func() { s = o.state })
	return s
}

// known returns the owner, or nil.
func (c *client) known(name, id string) *owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[ownerKey{name, id}]
}

// forgetLocked forgets an owner, of which nothing is left in the store.
func (c *client) forgetLocked(o *owner) {
	c.leavePlaceLocked(o)
	o.state, o.strays = asking, nil
	c.moveLocked(o, nil)
	if c.owners[o.ownerKey] == o {
		delete(c.owners, o.ownerKey)
	}
	if len(c.owners) == 0 && c.mostOwners > 1000 {
		c.owners, c.mostOwners = map[ownerKey]*owner{}, 0 // a map does not shrink (P9)
	}
}

// moveLocked makes k the keeper of the owner's nodes, of which there are none yet.
func (c *client) moveLocked(o *owner, k *keeper) {
	o.keeper, o.nodes, o.spare, o.token, o.watch, o.revoked, o.claim, o.until = k, nil, nil, 0, nil, 0, false, 0
}

// leavePlaceLocked ends the waiting at an owner's place.
func (c *client) leavePlaceLocked(o *owner) {
	p := o.place
	if p == nil {
		return
	}
	o.place = nil
	p.wake()
	if !o.keeper.trust.Over {
		o.keeper.session.Unwatch(p.watch)
	}
}

// lostPlace forgets the nodes of a place. If they may be there yet, because a server has said that their
// session is over, it remembers the keeper: the nodes are looked for when the owner is withdrawn. It returns errGone.
func (c *client) lostPlace(o *owner) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(o)
	if k := o.keeper; k != nil && (k.trust.Over || k.session.Err() != nil) {
		o.strays, o.strayKnown = k, o.state == queued
	}
	o.state = asking
	c.moveLocked(o, nil)
	return errGone
}

// expireAtLocked sets when an owner's nodes are deleted unless they are renewed or confirmed.
func (c *client) expireAtLocked(o *owner, until driver.Instant) {
	o.until = until
	c.timer.Set(until)
}

// sweepPause is the time between two sweeps, at least, and between two attempts to delete a node.
const sweepPause = 50 * time.Millisecond

// sweep deletes the nodes whose time is over (P9). The timer calls it. It visits all owners, and not often: a hold is
// renewed, and a place confirmed, long before its time is over.
func (c *client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	next := driver.Instant(math.MaxInt64)
	for _, o := range c.owners {
		switch {
		case o.until == 0:
			continue
		case o.until > now:
			next = min(next, o.until)
			continue
		}
		select {
		case o.busy <- struct{}{}:
			if !c.isClosed {
				c.background.Go(func() { c.remove(o) })
			}
		default: // what is under way may be its sign of life
			next = min(next, now.Add(sweepPause))
		}
	}
	if next != math.MaxInt64 {
		c.timer.Set(max(next, now.Add(sweepPause)))
	}
}

// remove deletes the nodes of an owner, which the caller has reserved, until the store confirms it or
// their session has ended.
func (c *client) remove(o *owner) {
	defer func() { <-o.busy }()
	for {
		ctx, cancel := context.WithTimeout(c.life, requestWithin)
		err := c.withdraw(ctx, o)
		cancel()
		c.mu.Lock()
		if err == nil || o.keeper == nil || o.keeper.trust.Over {
			c.forgetLocked(o)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if !pause.Sleep(c.life, sweepPause) {
			return
		}
	}
}
