package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// look is what is to be looked at of one hold.
type look struct {
	o     *owner
	nodes []string
	watch *zk.Watch // the owner's, which is another one's business once the hold is released
	grant int       // of a renewal
}

// Renew implements driver.Driver. One write of a session's own node renews all holds of the session (P2). Behind it, in
// the same round trip, Renew asks whether the nodes of the holds are there, and watches them.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	out, keepers := make([]driver.Renewal, len(grants)), map[*keeper][]look{}
	c.mu.Lock()
	now := c.clock.Now()
	for i := range grants {
		o := c.owners[ownerKey{grants[i].Name, grants[i].Owner}]
		if out[i].Err = c.renewableLocked(o, &grants[i], now); out[i].Err == nil {
			keepers[o.keeper] = append(keepers[o.keeper], c.lookAtLocked(o, i))
		}
	}
	c.mu.Unlock()
	for k, looks := range keepers {
		least := k.timeout
		for _, l := range looks {
			least = min(least, grants[l.grant].TTL)
		}
		// Holds that were taken at different times are due at different times. Those that are due soon after a write
		// of the session rest on it, and are due together from then on. Of two groups one is always due at most half
		// of a third of the TTL after the other, which is soon enough: so before long one write in each third renews all.
		replies, err := k.look(ctx, c.clock.Now().Add(-least/5), looks)
		c.mu.Lock()
		for i, l := range looks {
			out[l.grant] = c.renewedLocked(k, l, &grants[l.grant], replies[i], err)
		}
		c.mu.Unlock()
	}
	return out
}

// renewableLocked returns why a grant cannot be renewed, or nil.
func (c *client) renewableLocked(o *owner, g *driver.Grant, now driver.Instant) error {
	if err := c.tombstones.Get(g.Owner, now); err != nil {
		return err
	}
	if o == nil || o.state != held || g.Token != 0 && g.Token != o.token {
		return driver.ErrNotHeld
	}
	if o.keeper.trust.Over {
		return o.keeper.lost()
	}
	stays := o.until
	if !o.claim {
		stays = stays.Add(-o.lockDelay)
	}
	if now >= stays {
		return driver.ErrNotHeld // it has lapsed, and is being deleted
	}
	return nil
}

// lookAtLocked returns what is to be looked at of a hold.
func (c *client) lookAtLocked(o *owner, grant int) look {
	if o.watch == nil {
		o.watch = zk.NewWatch(func(e zk.Event) { c.happened(o, e) })
	}
	return look{o, slices.Concat(o.nodes, o.spare), o.watch, grant}
}

// look sees to it that the session was alive at after or later, asks whether nodes of holds are there, and watches
// those that are. It returns the replies for each hold.
func (k *keeper) look(ctx context.Context, after driver.Instant, looks []look) ([][]zk.Reply, error) {
	var ops []zk.Op
	for _, l := range looks {
		for _, node := range l.nodes {
			ops = append(ops, zk.GetData(node, l.watch))
		}
	}
	replies, err := k.refresh(ctx, after, ops...)
	each := make([][]zk.Reply, len(looks))
	for i := 0; i < len(looks) && err == nil; i++ {
		each[i], replies = replies[:len(looks[i].nodes)], replies[len(looks[i].nodes):]
	}
	return each, err
}

// renewedLocked returns what has become of a hold.
func (c *client) renewedLocked(k *keeper, l look, g *driver.Grant, replies []zk.Reply, err error) driver.Renewal {
	o := l.o
	if k.trust.Over {
		err = k.lost()
	}
	if err == nil {
		err = c.lookedAtLocked(l, replies)
	}
	if err == nil { // the hold may have been released, or have lapsed, before the answer came
		err = c.renewableLocked(o, g, c.clock.Now())
	}
	switch {
	case err != nil:
		return driver.Renewal{Err: err}
	case o.keeper != k:
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	o.claim = false
	c.expireAtLocked(o, k.trust.Since.Add(g.TTL+g.LockDelay))
	return driver.Renewal{Since: k.trust.Since, Valid: min(g.TTL, k.timeout-g.LockDelay)}
}

// lookedAtLocked takes in what look has read, in a session that was alive after that. It returns
// ErrBroken if a node of the hold is gone.
func (c *client) lookedAtLocked(l look, replies []zk.Reply) error {
	o := l.o
	if o.state != held || !slices.Equal(l.nodes, slices.Concat(o.nodes, o.spare)) {
		return nil // released, or downgraded, since
	}
	gone := 0
	for i := range replies {
		switch err := replies[i].Err; {
		case errors.Is(err, zk.NoNode):
			gone++
		case err != nil:
			return err
		default:
			c.revokedLocked(o, replies[i])
		}
	}
	if o.spare != nil && gone == 1 { // one of the two is there: which says whether it was downgraded
		if replies[0].Err != nil {
			o.nodes, o.mode = o.spare, driver.Shared
		}
		o.spare = nil
		return nil
	}
	if gone > 0 {
		c.brokenLocked(o)
		return driver.ErrBroken
	}
	return nil
}

// brokenLocked notes that somebody has deleted a node of a hold. What is left of it is deleted.
func (c *client) brokenLocked(o *owner) {
	c.buryLocked(o.id, driver.ErrBroken)
	c.tellLocked(driver.Loss{Owners: []string{o.id}, Err: driver.ErrBroken})
	o.state = doubtful
	c.expireAtLocked(o, c.clock.Now())
}

// happened is told by the watch on a hold's nodes. The end of the session is told by the keeper.
func (c *client) happened(o *owner, e zk.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e != zk.SessionOver {
		c.lookSoonLocked(o)
	}
}

// lookSoonLocked looks at a hold's nodes in the background, and watches them again, so that a break is told before the
// next renewal. The watch begins with the first renewal, or with the grant if somebody is to hear of Revoke.
func (c *client) lookSoonLocked(o *owner) {
	if c.isClosed || o.state != held {
		return
	}
	c.background.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, requestWithin)
		defer cancel()
		c.mu.Lock()
		if o.state != held {
			c.mu.Unlock()
			return
		}
		k, l := o.keeper, c.lookAtLocked(o, 0)
		c.mu.Unlock()
		replies, err := k.look(ctx, 0, []look{l})
		if err == nil { // after an error the next renewal looks
			c.locked(func() { _ = c.lookedAtLocked(l, replies[0]) }) // told as a loss
		}
	})
}

// Downgrade implements driver.Downgrader. As Curator 5.5 and newer, it makes a reader's node with the
// writer's number, so that nobody comes in between; here in the transaction that deletes the writer's.
// The token stays the writer's: the new node's data says it (P3).
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if g.Mode == driver.Slot {
		return driver.Grant{}, driver.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	o, err := c.reserve(ctx, g.Name, g.Owner)
	if err != nil {
		return driver.Grant{}, err
	}
	defer c.unreserve(o)
	g.Mode, g.Since, g.Valid, g.Token, g.Claim = driver.Shared, renewal.Since, renewal.Valid, o.token, false
	c.mu.Lock()
	if o.state != held || o.keeper.trust.Over {
		c.mu.Unlock()
		return driver.Grant{}, driver.ErrNotHeld
	}
	k, writer := o.keeper, o.nodes[0]
	e, ok := parseEntry(path.Base(writer))
	if ok && e.stem == stemRead {
		o.mode = driver.Shared
		c.mu.Unlock()
		return g, nil
	}
	reader := path.Dir(writer) + "/" + o.guid + stemRead + e.digits()
	o.spare = []string{reader}
	c.mu.Unlock()
	replies, err := k.do(ctx, zk.Multi(
		zk.Create(reader, downgradedData(g.Note, o.token), c.acl, zk.Ephemeral),
		zk.Delete(writer, zk.AnyVersion),
	))
	if err != nil {
		return driver.Grant{}, err // asked again, or found out by the next renewal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := replies[0].Err; {
	case err == nil, errors.Is(err, zk.NodeExists):
		o.nodes, o.spare, o.mode = []string{reader}, nil, driver.Shared
		return g, nil
	case errors.Is(err, zk.NoNode):
		c.brokenLocked(o)
		return driver.Grant{}, driver.ErrBroken
	default:
		o.spare = nil
		return driver.Grant{}, fmt.Errorf("downgrading: %w", err)
	}
}
