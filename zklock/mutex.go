package zklock

import (
	"context"
	"errors"
	"path"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// A mutex, and each half of a read-write lock, is a node among the others of the name: Curator's InterProcessMutex,
// InterProcessReadWriteLock and LeaderLatch. The nodes that come first hold the name.

// createNode makes the node of the request and reads what is before it, in one round trip.
func (a *call) createNode(ctx context.Context) error {
	c, path := a.c, a.c.layout.path(a.req.Name)
	create := zk.Create(path+"/"+a.o.guid+c.layout.stem(a.req), []byte(a.req.Note), c.acl, zk.Ephemeral|zk.Sequential)
	replies, err := a.o.keeper.createIn(ctx, []string{path}, create, zk.Children(path, nil))
	if err := a.created(replies, err); err != nil {
		return err
	}
	if err := a.see(replies[1]); err != nil {
		return a.takeBack(ctx, err)
	}
	return a.checkKind(ctx)
}

// see takes in which nodes a name has.
func (a *call) see(reply zk.Reply) error {
	switch {
	case errors.Is(reply.Err, zk.NoNode):
		return errGone
	case reply.Err != nil:
		return reply.Err
	}
	kids := parseChildren(reply.Children)
	entries, dir := kids.entries, path.Dir(a.o.nodes[0])+"/"
	ahead, err := before(entries, path.Base(a.o.nodes[0]))
	if err != nil {
		return err
	}
	a.view = view{
		ahead: len(ahead), behind: len(ahead)+1 < len(entries), queued: len(entries) - holders(entries),
		kinds: kids.semaphore,
	}
	if b := blocker(ahead, a.req.Mode); b != "" {
		a.view.blocker, a.view.first = dir+b, dir+ahead[0].name
	}
	return nil
}

// checkKind refuses a name that is in use as a semaphore, or as a mutex (P10). Two clients may ask for it at the same time, one for
// a mutex and one for a semaphore. Each has made its node before it looks, so at least one of them sees the other's.
func (a *call) checkKind(ctx context.Context) error {
	ops := []zk.Op{zk.Children(a.c.layout.locks(a.req.Name), nil), zk.Children(a.c.layout.leases(a.req.Name), nil)}
	switch {
	case a.req.Mode == driver.Slot:
		ops = []zk.Op{zk.Children(a.c.layout.path(a.req.Name), nil)}
	case !a.view.kinds:
		return nil
	}
	replies, err := a.o.keeper.do(ctx, ops...)
	if err != nil {
		return a.uncertain(err)
	}
	for i := range replies {
		switch reply := &replies[i]; {
		case errors.Is(reply.Err, zk.NoNode):
		case reply.Err != nil:
			return a.takeBack(ctx, reply.Err)
		case len(parseChildren(reply.Children).entries) > 0:
			return a.takeBack(ctx, driver.ErrMismatch)
		}
	}
	return nil
}

// refuse takes back the node of a Try, if others still come first at that moment. Otherwise the node would for a while
// be the first of a name that nobody holds, and refuse others.
func (a *call) refuse(ctx context.Context) error {
	for {
		replies, err := a.o.keeper.do(ctx,
			zk.Multi(zk.Check(a.view.blocker, zk.AnyVersion), zk.Delete(a.o.nodes[0], zk.AnyVersion)),
			zk.GetData(a.view.first, nil),
		)
		if err != nil {
			return a.uncertain(err)
		}
		switch multi := &replies[0]; {
		case multi.Err == nil:
			a.removed()
			return a.heldBy(replies[1])
		case !errors.Is(multi.Err, zk.NoNode):
			return a.takeBack(ctx, multi.Err)
		}
		if err := a.look(ctx); errors.Is(err, errGone) {
			a.c.lostPlace(a.o)
			return driver.ErrNotHeld // somebody has deleted it
		} else if err != nil {
			return a.uncertain(err)
		}
		if err := a.settle(ctx, false); err != errBlocked {
			return err
		}
	}
}

// heldBy says who holds the name, as far as is known.
func (a *call) heldBy(first zk.Reply) error {
	e := &driver.HeldError{Name: a.req.Name, Queued: max(0, a.view.queued-1)}
	if first.Err == nil {
		var told driver.Token
		e.Note, told = parseData(first.Data)
		e.Token = driver.Token(first.Stat.Czxid)
		if told != 0 {
			e.Token = told
		}
	}
	return e
}
