package zklock

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// renewing is one grant of a batch on its way through Renew.
type renewing struct {
	r     *record
	grant *driver.Grant
	out   *driver.Renewal
	look
}

// look is what is to be looked at of one hold, because it is not watched.
type look struct {
	nodes  []string
	events int       // record.events before that
	watch  *zk.Watch // the record's, which is another one's business once it is released
}

// errChanged says that something has happened at a hold's nodes since they were looked at.
var errChanged = errors.New("the nodes of the hold are being changed")

// looksAtOnce is how often one renewal looks at a hold whose nodes are being changed, as by notes.
const looksAtOnce = 5

// Renew implements driver.Driver. One write of a session's own node renews all holds of the session. The
// first renewal of a hold also looks whether its node is there, and watches it; the later ones ask for
// nothing more, because what the watch tells comes before the answer to the write.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_ = c.retrying(ctx, func() error {
		var err error
		for range looksAtOnce {
			if err = c.renew(ctx, grants, out); !errors.Is(err, errChanged) {
				break
			}
		}
		return err
	})
	return out
}

// renew renews the grants that are not renewed yet. It returns an error of those that can be tried again.
func (c *client) renew(ctx context.Context, grants []driver.Grant, out []driver.Renewal) error {
	sessions := map[*session][]renewing{}
	c.mu.Lock()
	now := c.clock.Now()
	for i := range grants {
		if out[i] != (driver.Renewal{}) && !errors.Is(out[i].Err, zk.ErrConnectionLoss) && !errors.Is(out[i].Err, errChanged) {
			continue
		}
		g := &grants[i]
		r := c.records[ownerKey{g.Name, g.Owner}]
		if err := c.renewableLocked(r, g, now); err != nil {
			out[i].Err = err
			continue
		}
		sessions[r.session] = append(sessions[r.session], renewing{r, g, &out[i], c.unwatchedLocked(r)})
	}
	c.mu.Unlock()
	for s, batch := range sessions {
		c.renewSession(ctx, s, batch)
	}
	var again error
	for i := range out {
		switch err := out[i].Err; {
		case errors.Is(err, zk.ErrConnectionLoss):
			return err
		case errors.Is(err, errChanged):
			again = err
		}
	}
	return again
}

// renewableLocked returns why a grant cannot be renewed, or nil.
func (c *client) renewableLocked(r *record, g *driver.Grant, now driver.Instant) error {
	if err := c.tombstones.Get(g.Owner, now); err != nil {
		return err
	}
	if r == nil || r.state != held || g.Token != 0 && g.Token != r.token {
		return driver.ErrNotHeld
	}
	if r.session.trust.Over {
		return r.session.lost()
	}
	stays := r.until
	if !r.claim {
		stays = stays.Add(-r.lockDelay)
	}
	if now >= stays {
		return driver.ErrNotHeld // it has lapsed, and is being deleted
	}
	return nil
}

// unwatchedLocked returns the nodes of a hold that are not watched.
func (c *client) unwatchedLocked(r *record) look {
	if r.watched {
		return look{}
	}
	if r.watch == nil {
		r.watch = zk.NewWatchFunc(func(_ string, e zk.Event) { c.happened(r, e) })
	}
	return look{slices.Concat(r.nodes, r.spare), r.events, r.watch}
}

// renewSession renews holds of one session.
func (c *client) renewSession(ctx context.Context, s *session, batch []renewing) {
	least := batch[0].grant.TTL
	var ops []zk.Op
	for _, one := range batch {
		least = min(least, one.grant.TTL)
		ops = append(ops, lookAt(one.look)...)
	}
	// Holds that were taken at different times are due at different times. Those that are due soon after a write of
	// the session rest on it, and are due together from then on. Of two groups one is always due at most half of a
	// third of the TTL after the other, which is soon enough: so before long one write in each third renews all.
	replies, err := s.refresh(ctx, c.clock.Now().Add(-min(least, s.timeout)/5), ops...)
	for _, one := range batch {
		there := replies
		if err == nil {
			there, replies = replies[:len(one.nodes)], replies[len(one.nodes):]
		}
		*one.out = c.renewed(s, one, there, err)
	}
}

// lookAt asks whether nodes of a hold are there, and watches those that are.
func lookAt(l look) []zk.Op {
	ops := make([]zk.Op, len(l.nodes))
	for i, node := range l.nodes {
		ops[i] = zk.GetData(node, l.watch)
	}
	return ops
}

// renewed returns what has become of a hold.
func (c *client) renewed(s *session, one renewing, replies []zk.Reply, err error) driver.Renewal {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := one.r
	switch {
	case s.trust.Over:
		return driver.Renewal{Err: s.lost()}
	case err != nil:
		return driver.Renewal{Err: err}
	}
	if err := c.lookedAtLocked(r, one.look, replies); err != nil {
		return driver.Renewal{Err: err}
	}
	if err := c.renewableLocked(r, one.grant, c.clock.Now()); err != nil {
		return driver.Renewal{Err: err} // released meanwhile, or it has lapsed before the answer came
	}
	if r.session != s {
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	if !r.watched {
		// A break, for instance, of which the watch has told and nobody has looked yet.
		return driver.Renewal{Err: errChanged}
	}
	r.claim = false
	g := one.grant
	c.expireAtLocked(r, s.trust.Since.Add(g.TTL+g.LockDelay))
	return driver.Renewal{Since: s.trust.Since, Valid: min(g.TTL, s.timeout-g.LockDelay)}
}

// lookedAtLocked takes in what lookAt has read, in a session that was alive after that. It returns
// ErrBroken if a node of the hold is gone.
func (c *client) lookedAtLocked(r *record, l look, replies []zk.Reply) error {
	if len(l.nodes) == 0 || r.state != held || !slices.Equal(l.nodes, slices.Concat(r.nodes, r.spare)) {
		return nil // released, or downgraded, meanwhile
	}
	gone := 0
	for i := range replies {
		switch err := replies[i].Err; {
		case errors.Is(err, zk.NoNode):
			gone++
		case err != nil:
			return err
		default:
			c.revokedLocked(r, replies[i].Data)
		}
	}
	if r.spare != nil && gone == 1 { // one of the two is there: which says whether it was downgraded
		if replies[0].Err != nil {
			r.nodes, r.downgraded, r.mode = r.spare, true, driver.Shared
		}
		r.spare = nil
		return nil
	}
	if gone == 0 {
		r.watched = r.events == l.events // else something has happened since
		return nil
	}
	c.brokenLocked(r)
	return driver.ErrBroken
}

// brokenLocked notes that somebody has deleted a node of a hold. What is left of it is deleted.
func (c *client) brokenLocked(r *record) {
	now := c.clock.Now()
	c.tombstones.Put(r.owner, driver.ErrBroken, now, now.Add(tombstoneFor))
	c.tellLocked(driver.Loss{Owners: []string{r.owner}, Err: driver.ErrBroken})
	r.state = doubtful
	c.expireAtLocked(r, now)
}

// happened is told by the watch on a hold's nodes. Suppose that ten thousand holds end with their session:
// one goroutine looks at all.
func (c *client) happened(r *record, e zk.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e != zk.SessionOver {
		r.watched = false
		r.events++
		c.lookSoonLocked(r)
	}
}

// lookSoonLocked looks at a hold's nodes in the background, and watches them.
func (c *client) lookSoonLocked(r *record) {
	if c.isClosed {
		return
	}
	c.changed = append(c.changed, r)
	if !c.checking {
		c.checking = true
		c.background.Go(c.lookAtChanged)
	}
}

// lookedAtOnce is how many holds are looked at in one write: what others ask for waits behind it.
const lookedAtOnce = 256

func (c *client) lookAtChanged() {
	for {
		c.mu.Lock()
		some := c.changed[:min(len(c.changed), lookedAtOnce)]
		c.changed = c.changed[len(some):]
		if c.checking = len(some) > 0; !c.checking {
			c.changed = nil
		}
		sessions := map[*session][]renewing{}
		for _, r := range some {
			if r.state == held && !r.watched {
				sessions[r.session] = append(sessions[r.session], renewing{r: r, look: c.unwatchedLocked(r)})
			}
		}
		c.mu.Unlock()
		if len(some) == 0 {
			return
		}
		for s, batch := range sessions {
			c.lookAtBatch(s, batch)
		}
	}
}

// lookAtBatch looks at holds of one session.
func (c *client) lookAtBatch(s *session, batch []renewing) {
	ctx, cancel := context.WithTimeout(c.life, requestWithin)
	defer cancel()
	var ops []zk.Op
	for _, one := range batch {
		ops = append(ops, lookAt(one.look)...)
	}
	replies, err := s.refresh(ctx, 0, ops...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range batch {
		if err != nil {
			return // the next renewal looks
		}
		_ = c.lookedAtLocked(one.r, one.look, replies[:len(one.nodes)]) // told as a loss
		replies = replies[len(one.nodes):]
	}
}
