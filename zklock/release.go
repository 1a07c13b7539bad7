package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/zksession"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// leaving is one grant on its way through Release, with its record reserved.
type leaving struct {
	r     *record
	nodes []string
	i     int // of the grant
}

// Release implements driver.Driver. Nodes that are known are deleted, those of one session by one write.
// Of a request with an unknown outcome the nodes are looked for, in the session that has asked for them.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for i := range errs {
		errs[i] = errToDo
	}
	_ = c.retrying(ctx, func() error { return c.release(ctx, grants, errs) })
	return errs
}

// errToDo marks a grant that is not released yet.
var errToDo = errors.New("not released yet")

// release releases the grants that are not released yet. It returns an error of those that can be tried
// again.
func (c *client) release(ctx context.Context, grants []driver.Grant, errs []error) error {
	sessions := map[*session][]leaving{}
	for i := range grants {
		if errs[i] != errToDo && !errors.Is(errs[i], zk.ErrConnectionLoss) {
			continue
		}
		g := &grants[i]
		if g.Token == 0 || g.Stray {
			c.putTombstone(g.Owner, driver.ErrNotHeld)
		}
		r := c.known(g.Name, g.Owner)
		if r == nil {
			errs[i] = c.releaseUnknown(ctx, g)
			continue
		}
		if err := r.lock(ctx); err != nil {
			errs[i] = err
			continue
		}
		c.mu.Lock()
		s, simple := r.session, (r.state == held || r.state == queued) && r.strays == nil && len(r.nodes) > 0 && !r.session.trust.Over
		if simple {
			c.leavePlaceLocked(r)
			r.state = doubtful // until the store has confirmed it
		}
		c.mu.Unlock()
		if simple {
			sessions[s] = append(sessions[s], leaving{r, append(r.nodes, r.spare...), i})
			continue
		}
		errs[i] = c.withdraw(ctx, r, g)
		c.released(r, errs[i])
	}
	for s, batch := range sessions {
		c.releaseBatch(ctx, s, batch, grants, errs)
	}
	for _, err := range errs {
		if errors.Is(err, zk.ErrConnectionLoss) {
			return err
		}
	}
	return nil
}

// releaseBatch deletes the nodes of one session's grants.
func (c *client) releaseBatch(ctx context.Context, s *session, batch []leaving, grants []driver.Grant, errs []error) {
	var ops []zk.Op
	var watched []string // nodes whose directories are to be watched
	for _, l := range batch {
		if op, ok := s.watchDirectory(l.nodes[0]); ok {
			ops, watched = append(ops, op), append(watched, l.nodes[0])
		}
	}
	for _, l := range batch {
		for _, path := range l.nodes {
			ops = append(ops, zk.Delete(path, zk.AnyVersion))
		}
	}
	replies, err := s.do(ctx, ops...)
	for i, node := range watched {
		if replies[i].Err != nil {
			s.notWatched(node)
		}
	}
	replies = replies[len(watched):]
	for _, l := range batch {
		if len(l.nodes) == 1 && replies[0].Err == nil {
			s.deleted(l.nodes[0], &replies[0])
		}
		there, err := deleted(replies[:len(l.nodes)], unlessAnswered(replies[:len(l.nodes)], err))
		replies = replies[len(l.nodes):]
		if err == nil && !there && grants[l.i].Token != 0 {
			err = driver.ErrBroken // the session lives, and yet its node was gone
		}
		errs[l.i] = err
		c.released(l.r, err)
	}
}

// unlessAnswered returns err unless all of the replies are answers.
func unlessAnswered(replies []zk.Reply, err error) error {
	for i := range replies {
		var code zk.Code
		if e := replies[i].Err; e != nil && !errors.As(e, &code) {
			return err
		}
	}
	return nil
}

// released ends the release of a record that was reserved. What could not be released is deleted by the client
// itself before long. Suppose that a waiter gives up while the ensemble has no majority for longer than the TTL,
// so that package holdfast has stopped to ask: its place would keep others waiting for as long as places last.
func (c *client) released(r *record, err error) {
	c.mu.Lock()
	soon := c.clock.Now().Add(requestWithin)
	if err == nil || driver.Gone(err) {
		c.forgetLocked(r)
	} else if r.state == doubtful && (r.until == 0 || r.until > soon) {
		c.expireAtLocked(r, soon)
	}
	c.mu.Unlock()
	<-r.busy
}

// withdraw deletes whatever a record, which the caller has reserved, has in the store. Nil says that
// nothing is left, and that no request of its owner can take effect any more.
func (c *client) withdraw(ctx context.Context, r *record, g *driver.Grant) error {
	c.mu.Lock()
	s, strays, sure := r.session, r.strays, r.state != doubtful && r.state != asking && len(r.nodes) > 0
	over := s != nil && s.trust.Over
	c.leavePlaceLocked(r)
	r.state = doubtful
	c.mu.Unlock()
	if strays != nil {
		if err := c.withdrawElsewhere(ctx, strays, r); err != nil {
			return err
		}
		c.mu.Lock()
		r.strays = nil
		c.mu.Unlock()
	}
	switch {
	case s == nil:
		return nil
	case over || s.zk.Err() != nil:
		return c.withdrawElsewhere(ctx, s, r)
	}
	paths := append(r.nodes, r.spare...)
	if !sure {
		found, err := c.find(ctx, s, r.name, r.guid, r.mode)
		if err != nil {
			if s.zk.Err() != nil {
				return c.withdrawElsewhere(ctx, s, r)
			}
			return err
		}
		paths = found
	}
	_, err := s.deleteNodes(ctx, paths)
	return err
}

// withdrawElsewhere sees to it that nothing is left of a session's request, where a server has said that
// the session is over. An old leader may say that, and then the new one keeps the session for another
// timeout. The session's own node tells: it goes in one transaction with all others of the session.
func (c *client) withdrawElsewhere(ctx context.Context, ended *session, r *record) error {
	s, err := c.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	found, asked, err := c.findAny(ctx, s, r.name, r.guid, r.mode, zk.Exists(ended.node, nil))
	if err != nil {
		return err
	}
	if _, err := s.deleteNodes(ctx, found); err != nil {
		return err
	}
	if zksession.Ended(asked) != zksession.Done {
		return errUnsure
	}
	return nil
}

// releaseUnknown releases what another client has asked for, or what is gone already.
func (c *client) releaseUnknown(ctx context.Context, g *driver.Grant) error {
	if g.Token != 0 {
		if err := c.tombstone(g.Owner); err != nil && !g.Stray {
			return err
		}
	}
	s, err := c.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.leave()
	found, asked, err := c.findAny(ctx, s, g.Name, guidOf(g.Owner), g.Mode)
	if err == nil && !asked.Written {
		err = errUnsure
	}
	if err != nil {
		return err
	}
	there, err := s.deleteNodes(ctx, found)
	if err == nil && !there && g.Token != 0 {
		err = driver.ErrNotHeld
	}
	return err
}

// tombstoneFor is how long an owner is remembered that was withdrawn or broken.
const tombstoneFor = 2 * time.Minute

func (c *client) putTombstone(owner string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.tombstones.Put(owner, why, now, now.Add(tombstoneFor))
}

// tombstone returns why an owner is refused, or nil.
func (c *client) tombstone(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tombstones.Get(owner, c.clock.Now())
}
