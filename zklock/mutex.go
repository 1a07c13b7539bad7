package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// createNode makes the node of the request and reads what is before it, in one round trip. It does not read that
// if the node's number tells that nobody is.
func (a *attempt) createNode(ctx context.Context) error {
	if a.req.Mode == driver.Slot {
		return a.createSlots(ctx)
	}
	s, path := a.r.session, a.c.layout.path(a.req.Name)
	create := zk.Create(path+"/"+a.r.guid.protected()+a.c.layout.stem(a.req), []byte(a.req.Note), a.c.acl, zk.Ephemeral|zk.Sequential)
	read := []zk.Op{zk.Children(path, nil)}
	if s.predicts(path) {
		read = nil
	}
	replies, err := s.createIn(ctx, []string{path}, create, read...)
	if err := a.created(ctx, replies, err); err != nil {
		return err
	}
	switch first := s.made(&replies[0]); {
	case read != nil:
		replies = replies[1:]
	case first:
		a.view = view{}
		return nil
	default:
		if replies, err = s.do(ctx, zk.Children(path, nil)); err != nil {
			return a.uncertain(err)
		}
	}
	if err := a.see(replies[0]); err != nil {
		return a.takeBack(ctx, err)
	}
	return a.checkKind(ctx)
}

// created takes in the answer to the creation of the node, which is the first of the replies. An error
// of the whole says that the answers to the others are missing, at least.
func (a *attempt) created(ctx context.Context, replies []zk.Reply, err error) error {
	if len(replies) == 0 {
		return err // a parent is missing and could not be made: nothing was made for certain
	}
	made := &replies[0]
	switch {
	case made.Err == nil:
	case notDone(made.Err):
		return fmt.Errorf("making a node: %w", made.Err)
	default:
		return a.unanswered(made.Err)
	}
	a.c.mu.Lock()
	a.r.nodes = []string{made.Path}
	a.c.mu.Unlock()
	if err != nil {
		return a.uncertain(err)
	}
	if a.r.token, err = tokenOf(made.Zxid); err != nil {
		return a.takeBack(ctx, err)
	}
	return nil
}

// notDone reports whether a server's answer says that an operation certainly has no effect. That the session is
// over does not: an old leader may say so.
func notDone(err error) bool {
	var code zk.Code
	return errors.As(err, &code) && code.NotDone()
}

// see takes in which nodes a name has.
func (a *attempt) see(reply zk.Reply) error {
	if reply.Err != nil {
		return reply.Err
	}
	kids := parseChildren(reply.Children)
	entries, path := kids.entries, a.r.nodes[0]
	ahead, err := before(entries, lastElement(path))
	if err != nil {
		return err
	}
	if len(ahead) == 0 && !kids.semaphore {
		a.r.session.isFirst(path, &reply)
	}
	a.view = view{
		ahead: len(ahead), behind: len(ahead)+1 < len(entries), queued: len(entries) - holders(entries),
		semaphore: kids.semaphore,
	}
	if b := blocker(ahead, a.req.Mode); b != nil {
		a.view.blocker = parent(path) + "/" + b.name
		a.view.first = parent(path) + "/" + ahead[0].name
	}
	return nil
}

// checkKind refuses a name that is in use as a semaphore. Suppose that two clients ask for it at the same
// time, one for a mutex and one for a semaphore. Each has made its node before it looks, so at least one
// of them sees the other's.
func (a *attempt) checkKind(ctx context.Context) error {
	if !a.view.semaphore {
		return nil
	}
	path := a.c.layout.path(a.req.Name)
	replies, err := a.r.session.do(ctx, zk.Children(path+"/"+locksDir, nil), zk.Children(path+"/"+leasesDir, nil))
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

// look sees what is before the node now. If the watch on what was in the way has not told anything, a
// look that only confirms the place asks for no more than whether the own node is there.
func (a *attempt) look(ctx context.Context, confirm bool) error {
	if a.req.Mode == driver.Slot {
		return a.lookSlots(ctx)
	}
	s := a.r.session
	if p := a.r.place; p != nil && p.armed && confirm && len(p.watch.C()) == 0 {
		replies, err := s.do(ctx, zk.Exists(a.r.nodes[0], nil))
		if err != nil {
			return err
		}
		if len(p.watch.C()) == 0 && replies[0].Err == nil {
			a.view = view{blocker: p.blocker, leases: p.leases, ahead: p.ahead}
			return nil
		}
	}
	// A list with the own node in it says that the session lives, as its own node would.
	children, since := zk.Children(parent(a.r.nodes[0]), nil), a.freshSince()
	ask := s.do
	if s.since() < since {
		ask = func(ctx context.Context, ops ...zk.Op) ([]zk.Reply, error) { return s.refresh(ctx, since, ops...) }
	}
	replies, err := ask(ctx, children)
	if err != nil {
		return err
	}
	if errors.Is(replies[0].Err, zk.NoNode) {
		return errGone
	}
	return a.see(replies[0])
}

// freshSince is since when the session's timeout must run for a hold that is taken now. A claim counts from
// there too, and most of it must be left (P7).
func (a *attempt) freshSince() driver.Instant {
	return a.c.clock.Now().Add(-min(a.req.TTL, a.term.session, 2*a.c.caps.Poll) / 3)
}

// refuse takes back the node of a Try, if others still come first at that moment. Suppose that it were
// deleted whatever happens meanwhile: then for a while it would be the first node of a name that nobody
// holds, and refuse others.
func (a *attempt) refuse(ctx context.Context) (driver.Grant, error) {
	if a.req.Mode == driver.Slot {
		return a.refuseSlots(ctx)
	}
	for {
		replies, err := a.r.session.do(ctx,
			zk.Multi(zk.Check(a.view.blocker, zk.AnyVersion), zk.Delete(a.r.nodes[0], zk.AnyVersion)),
			zk.GetData(a.view.first, nil),
		)
		if err != nil {
			return driver.Grant{Request: *a.req}, a.uncertain(err)
		}
		removed := replies[0].Err == nil || len(replies[0].Results) == 2 &&
			replies[0].Results[0].Err != zk.NoNode && errors.Is(replies[0].Results[1].Err, zk.NoNode)
		if removed {
			a.removed()
			return driver.Grant{}, a.heldBy(replies[1])
		}
		if !errors.Is(replies[0].Err, zk.NoNode) {
			return driver.Grant{Request: *a.req}, a.takeBack(ctx, replies[0].Err)
		}
		if err := a.look(ctx, false); err != nil {
			if errors.Is(err, errGone) {
				a.c.lostPlace(a.r)
				return driver.Grant{}, driver.ErrNotHeld // somebody has deleted it
			}
			return driver.Grant{Request: *a.req}, a.uncertain(err)
		}
		if g, err := a.settle(ctx, false); err != errBlocked {
			return g, err
		}
	}
}

// heldBy says who holds the name, as far as is known.
func (a *attempt) heldBy(first zk.Reply) *driver.HeldError {
	e := &driver.HeldError{Name: a.req.Name, Queued: max(0, a.view.queued-1)}
	if first.Err == nil {
		var told driver.Token
		e.Note, told = parseData(first.Data)
		e.Token, _ = tokenOf(first.Stat.Czxid)
		if told != 0 {
			e.Token = told
		}
	}
	return e
}
