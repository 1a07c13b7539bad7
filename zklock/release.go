package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
// Of a request with an unknown outcome the nodes are looked for (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	errs, keepers := make([]error, len(grants)), map[*keeper][]leaving{}
	for i := range grants {
		g := &grants[i]
		if g.Token == 0 || g.Stray {
			c.locked(func() { c.buryLocked(g.Owner, driver.ErrNotHeld) })
		}
		o := c.known(g.Name, g.Owner)
		if o == nil {
			errs[i] = c.releaseUnknown(ctx, g)
			continue
		}
		if errs[i] = o.lock(ctx); errs[i] != nil {
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
	return errs
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
// nothing is left, and that no request of the owner can take effect any more (P6). Where a server has said
// that a session of the owner is over, another session asks whether it is.
func (c *client) withdraw(ctx context.Context, o *owner) error {
	c.mu.Lock()
	k, ended := o.keeper, []*keeper(nil)
	c.leavePlaceLocked(o)
	o.state = doubtful
	if o.strays != nil {
		ended = append(ended, o.strays)
	}
	if k != nil && (k.trust.Over || k.session.Err() != nil) {
		k, ended = nil, append(ended, k)
	}
	c.mu.Unlock()
	if k == nil {
		if ended == nil {
			return nil
		}
		var err error
		if k, err = c.anyKeeper(ctx); err != nil {
			return err
		}
	}
	_, err := c.erase(ctx, k, o.name, o.guid, o.mode, ended...)
	if err == nil {
		c.locked(func() { o.strays = nil })
	}
	return err
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
	there, err := c.erase(ctx, k, g.Name, guidOf(g.Owner), g.Mode)
	if err == nil && !there && g.Token != 0 {
		return driver.ErrNotHeld
	}
	return err
}

// erase deletes an owner's nodes of any session, and reports whether any was there: see find.
func (c *client) erase(ctx context.Context, k *keeper, name, guid string, mode driver.Mode, ended ...*keeper) (there bool, err error) {
	found, err := c.find(ctx, k, name, guid, mode, ended...)
	there, failed := k.deleteNodes(ctx, found)
	return there, cmp.Or(err, failed)
}

// errUnsure says that nobody knows yet what has become of a request.
var errUnsure = errors.New("ZooKeeper has not said what became of the request")

// find returns the paths of an owner's nodes of any session. The session of k writes its own node before: so all
// that it has asked for before has taken effect, or never will. Of sessions that a server has said are over it asks
// for their own nodes: an old leader may say that, and the new one keeps the session for another timeout. A
// session's own node goes in one transaction with all others of the session.
func (c *client) find(ctx context.Context, k *keeper, name, guid string, mode driver.Mode, ended ...*keeper) (found []string, err error) {
	dirs := []string{c.layout.path(name)}
	if mode == driver.Slot {
		dirs = []string{c.layout.locks(name), c.layout.leases(name)}
	}
	ops := []zk.Op{k.write()}
	for _, dir := range dirs {
		ops = append(ops, zk.Children(dir, nil))
	}
	for _, other := range ended {
		ops = append(ops, zk.Exists(other.node, nil))
	}
	replies, err := k.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	asked := zksession.Asked{Written: replies[0].Committed, Read: true}
	for i, dir := range dirs {
		reply := &replies[1+i]
		if reply.Err != nil && !errors.Is(reply.Err, zk.NoNode) {
			return nil, reply.Err
		}
		for _, child := range reply.Children {
			if strings.HasPrefix(child, guid) {
				found = append(found, dir+"/"+child)
			}
		}
	}
	if asked.There = len(found) > 0; zksession.Withdrawn(asked) == zksession.Again {
		err = errUnsure
	}
	for _, own := range replies[1+len(dirs):] {
		asked.There, asked.Read = own.Err == nil, own.Err == nil || errors.Is(own.Err, zk.NoNode)
		if zksession.Ended(asked) != zksession.Done {
			err = errUnsure
		}
	}
	return found, err
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
