package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/zksession"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// leaving is one grant on its way through Release, with its owner reserved.
type leaving struct {
	o     *owner
	nodes []string
	i     int // of the grant
}

// Release implements driver.Driver. Nodes that are known are deleted, those of one session by one write (P4).
// Of a request with an unknown outcome the nodes are looked for, in the session that has asked for them (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	err := cmp.Or(c.alive(ctx), errToDo)
	for i := range errs {
		errs[i] = err
	}
	if err != errToDo {
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_ = c.retrying(ctx, func() error { return c.release(ctx, grants, errs) })
	return errs
}

// errToDo marks a grant that was not released yet.
var errToDo = errors.New("not released yet")

// release releases the grants that are not released yet. It returns an error of those that can be tried
// again.
func (c *client) release(ctx context.Context, grants []driver.Grant, errs []error) error {
	keepers := map[*keeper][]leaving{}
	for i := range grants {
		if errs[i] != errToDo && !errors.Is(errs[i], zk.ErrConnectionLoss) {
			continue
		}
		g := &grants[i]
		if g.Token == 0 || g.Stray {
			c.locked(func() { c.buryLocked(g.Owner, driver.ErrNotHeld) })
		}
		o := c.known(g.Name, g.Owner)
		if o == nil {
			errs[i] = c.releaseUnknown(ctx, g)
			continue
		}
		if err := o.lock(ctx); err != nil {
			errs[i] = err
			continue
		}
		c.mu.Lock()
		k, simple := o.keeper, (o.state == held || o.state == queued) && o.strays == nil && len(o.nodes) > 0 && !o.keeper.trust.Over
		if simple {
			c.leavePlaceLocked(o)
			o.state = doubtful // until the store has confirmed it
		}
		c.mu.Unlock()
		if simple {
			keepers[k] = append(keepers[k], leaving{o, append(o.nodes, o.spare...), i})
			continue
		}
		errs[i] = c.withdraw(ctx, o)
		c.released(o, errs[i])
	}
	for k, batch := range keepers {
		c.releaseBatch(ctx, k, batch, grants, errs)
	}
	for _, err := range errs {
		if errors.Is(err, zk.ErrConnectionLoss) {
			return err
		}
	}
	return nil
}

// releaseBatch deletes the nodes of one session's grants.
func (c *client) releaseBatch(ctx context.Context, k *keeper, batch []leaving, grants []driver.Grant, errs []error) {
	var paths []string
	for _, l := range batch {
		paths = append(paths, l.nodes...)
	}
	replies, _ := k.do(ctx, deletes(paths)...)
	for _, l := range batch {
		there, err := deleted(replies[:len(l.nodes)])
		replies = replies[len(l.nodes):]
		if err == nil && !there && grants[l.i].Token != 0 {
			err = driver.ErrBroken // the session lives, and yet its node was gone
		}
		errs[l.i] = err
		c.released(l.o, err)
	}
}

// deletes deletes nodes.
func deletes(paths []string) (ops []zk.Op) {
	for _, path := range paths {
		ops = append(ops, zk.Delete(path, zk.AnyVersion))
	}
	return ops
}

// deleteNodes deletes nodes, and reports whether any was there.
func (k *keeper) deleteNodes(ctx context.Context, paths []string) (bool, error) {
	replies, _ := k.do(ctx, deletes(paths)...)
	return deleted(replies)
}

// deleted judges the answers to deletions, or what there is in place of them.
func deleted(replies []zk.Reply) (there bool, err error) {
	for i := range replies {
		switch e := replies[i].Err; {
		case e == nil:
			there = true
		case !errors.Is(e, zk.NoNode) && err == nil:
			err = fmt.Errorf("deleting a node: %w", e)
		}
	}
	return there, err
}

// released ends the release of an owner that was reserved. What could not be released is deleted by the client
// itself before long: package holdfast stops to ask after the TTL, and the place of a waiter that has given up would
// keep others waiting for as long as places last.
func (c *client) released(o *owner, err error) {
	c.mu.Lock()
	soon := c.clock.Now().Add(requestWithin)
	if err == nil || driver.Gone(err) {
		c.forgetLocked(o)
	} else if o.state == doubtful && (o.until == 0 || o.until > soon) {
		c.expireAtLocked(o, soon)
	}
	c.mu.Unlock()
	<-o.busy
}

// withdraw deletes whatever an owner, which the caller has reserved, has in the store. Nil says that
// nothing is left, and that no request of the owner can take effect any more (P6).
func (c *client) withdraw(ctx context.Context, o *owner) error {
	c.mu.Lock()
	k, strays, sure := o.keeper, o.strays, o.state != doubtful && o.state != asking && len(o.nodes) > 0
	over := k != nil && k.trust.Over
	c.leavePlaceLocked(o)
	o.state = doubtful
	c.mu.Unlock()
	if strays != nil {
		if err := c.withdrawElsewhere(ctx, strays, o); err != nil {
			return err
		}
		c.locked(func() { o.strays = nil })
	}
	switch {
	case k == nil:
		return nil
	case over || k.session.Err() != nil:
		return c.withdrawElsewhere(ctx, k, o)
	}
	paths := append(o.nodes, o.spare...)
	if !sure {
		var err error
		if paths, err = c.find(ctx, o); err != nil && k.session.Err() != nil {
			return c.withdrawElsewhere(ctx, k, o)
		} else if err != nil {
			return err
		}
	}
	_, err := k.deleteNodes(ctx, paths)
	return err
}

// withdrawElsewhere sees to it that nothing is left of a session's request, where a server has said that
// the session is over. An old leader may say that, and then the new one keeps the session for another
// timeout. The session's own node tells: it goes in one transaction with all others of the session.
func (c *client) withdrawElsewhere(ctx context.Context, ended *keeper, o *owner) error {
	k, err := c.anyKeeper(ctx)
	if err != nil {
		return err
	}
	defer k.leave()
	_, asked, err := c.erase(ctx, k, o.name, o.guid, o.mode, zk.Exists(ended.node, nil))
	if err != nil {
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
	k, err := c.anyKeeper(ctx)
	if err != nil {
		return err
	}
	defer k.leave()
	there, asked, err := c.erase(ctx, k, g.Name, guidOf(g.Owner), g.Mode)
	switch {
	case err == nil && !asked.Written:
		return errUnsure
	case err == nil && !there && g.Token != 0:
		return driver.ErrNotHeld
	}
	return err
}

// erase deletes an owner's nodes of any session: see findAny. It reports whether any was there.
func (c *client) erase(ctx context.Context, k *keeper, name string, g string, mode driver.Mode, more ...zk.Op) (there bool, asked zksession.Asked, err error) {
	found, asked, err := c.findAny(ctx, k, name, g, mode, more...)
	if err == nil {
		there, err = k.deleteNodes(ctx, found)
	}
	return there, asked, err
}

// errUnsure says that nobody knows yet what has become of a request.
var errUnsure = errors.New("ZooKeeper has not said what became of the request")

// find returns the paths of an owner's nodes, in the session that has asked for them. The session's own node is
// written before: so all that this session has asked for before has taken effect, or never will.
func (c *client) find(ctx context.Context, o *owner) ([]string, error) {
	k := o.keeper
	found, asked, err := c.findAny(ctx, k, o.name, o.guid, o.mode)
	if err == nil && zksession.Withdrawn(asked) == zksession.Again {
		err = errUnsure
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var ops []zk.Op
	for _, path := range found {
		ops = append(ops, zk.Exists(path, nil))
	}
	replies, err := k.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	var own []string
	for i, reply := range replies {
		if reply.Err == nil && reply.Stat.EphemeralOwner == k.session.ID() {
			own = append(own, found[i])
		}
	}
	return own, nil
}

// findAny returns the paths of an owner's nodes of any session, and what was asked for that. The operation more asks
// for an ended session's own node.
func (c *client) findAny(ctx context.Context, k *keeper, name string, g string, mode driver.Mode, more ...zk.Op) ([]string, zksession.Asked, error) {
	dirs := []string{c.layout.path(name)}
	if mode == driver.Slot {
		dirs = []string{c.layout.locks(name), c.layout.leases(name)}
	}
	ops := []zk.Op{k.write()}
	for _, dir := range dirs {
		ops = append(ops, zk.Children(dir, nil))
	}
	replies, err := k.do(ctx, append(ops, more...)...)
	if err != nil {
		return nil, zksession.Asked{Expired: k.session.Err() != nil}, err
	}
	asked := zksession.Asked{Written: replies[0].Committed, Read: true}
	var found []string
	for i, dir := range dirs {
		reply := &replies[1+i]
		if reply.Err != nil && !errors.Is(reply.Err, zk.NoNode) {
			return nil, asked, reply.Err
		}
		for _, child := range reply.Children {
			if strings.HasPrefix(child, g) {
				found = append(found, dir+"/"+child)
			}
		}
	}
	asked.There = len(found) > 0
	if len(more) > 0 {
		last := replies[len(replies)-1].Err
		asked.There, asked.Read = last == nil, last == nil || errors.Is(last, zk.NoNode)
	}
	return found, asked, nil
}

// tombstoneFor is how long an owner is remembered that was withdrawn or broken.
const tombstoneFor = 2 * time.Minute

func (c *client) buryLocked(id string, why error) {
	now := c.clock.Now()
	c.tombstones.Put(id, why, now, now.Add(tombstoneFor))
}

// tombstone returns why an owner is refused, or nil.
func (c *client) tombstone(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tombstones.Get(id, c.clock.Now())
}
