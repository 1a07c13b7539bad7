package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Try implements driver.Driver. Its node is created, and the name's nodes are read, in one round trip. A
// Try that is refused removes its node again.
//
// Unfair (barging) changes nothing: the order of the nodes is the order of the grants.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.take(ctx, &req, false)
}

// Enqueue implements driver.Queuer. It is Try whose node stays.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.take(ctx, &req, true)
}

// Contended implements driver.ContentionHinter: to take a place costs no more than a Try, and nothing is lost
// if others come first.
func (c *client) Contended(string) bool { return true }

func (c *client) take(ctx context.Context, req *driver.Request, queue bool) (driver.Grant, error) {
	timeout, err := c.admit(ctx, req)
	if err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	o, err := c.reserve(ctx, req.Name, req.Owner)
	if err != nil {
		return driver.Grant{}, err
	}
	defer c.unreserve(o)
	if err := c.tombstone(o.id); err != nil {
		return driver.Grant{}, err
	}
	a := &call{c: c, o: o, req: req, timeout: timeout, grant: driver.Grant{Request: *req}}
	err = c.retrying(ctx, func() error { return a.ask(ctx, queue) })
	return a.grant, err
}

// call is one call that asks for a hold, or waits for it, with the owner reserved. Its methods that return nil have
// made a hold of the place, and set grant.
type call struct {
	c       *client
	o       *owner
	req     *driver.Request
	timeout time.Duration // of the session
	view    view
	grant   driver.Grant // what the caller gets
}

// view is what was before one's node when the store was last asked.
type view struct {
	blocker string // path of the node that is waited for; "": none
	leases  bool   // a semaphore's head waits for leases, not for a node
	ahead   int
	behind  bool // others were behind it
	first   string
	queued  int
	kinds   bool // of a mutex: there are directories of a semaphore
	room    bool // of a semaphore: there are permits left
	told    int  // its slots, as the leases' data says; 0: that does not say
	version int32
}

// errBlocked says that the node is there, and others come first.
var errBlocked = errors.New("others come first")

// ask goes on with what there is of the request, or makes its node. It may be called again after a lost
// connection: it finds the node that it has made before.
func (a *call) ask(ctx context.Context, queue bool) error {
	err := a.resume(ctx)
	if errors.Is(err, errGone) {
		err = a.create(ctx)
	}
	switch {
	case err != errBlocked:
		return err
	case queue:
		return a.line()
	case a.req.Mode == driver.Slot:
		return a.refuseSlots(ctx)
	}
	return a.refuse(ctx)
}

// resume goes on with a request of the same owner that was made before. It returns errGone if there is none.
func (a *call) resume(ctx context.Context) error {
	c, o := a.c, a.o
	switch state := c.stateOf(o); {
	case state == asking:
		return errGone
	case state == held:
		a.grant = driver.Grant{Request: *a.req, Token: o.token, Block: 1}
		renewal := c.Renew(ctx, []driver.Grant{a.grant})[0]
		a.grant.Since, a.grant.Valid = renewal.Since, renewal.Valid
		return renewal.Err
	case o.keeper == nil || o.keeper.session.Err() != nil:
		return c.lostPlace(o)
	case state == doubtful || len(o.nodes) == 0:
		return a.adopt(ctx)
	}
	if err := a.look(ctx); errors.Is(err, errGone) {
		return c.lostPlace(o)
	} else if err != nil {
		return err
	}
	return a.settle(ctx, false)
}

// adopt finds the nodes of a request whose answer was lost, in its session. A write goes before the
// read, so that the request has taken effect or never will.
func (a *call) adopt(ctx context.Context) error {
	c, o, k := a.c, a.o, a.o.keeper
	found, err := c.find(ctx, k, o.name, o.guid, o.mode)
	var replies []zk.Reply
	if err == nil {
		var ops []zk.Op
		for _, path := range found {
			ops = append(ops, zk.Exists(path, nil))
		}
		replies, err = k.do(ctx, ops...)
	}
	var nodes []string
	var czxid int64
	leases := 0
	for i, reply := range replies {
		if reply.Err != nil || reply.Stat.EphemeralOwner != k.session.ID() {
			continue
		}
		inLeases := strings.HasPrefix(found[i], c.layout.leases(o.name)+"/")
		if nodes == nil || inLeases && leases == 0 {
			czxid = reply.Stat.Czxid
		}
		if nodes = append(nodes, found[i]); inLeases {
			leases++
		}
	}
	switch {
	case err != nil && k.session.Err() != nil, err == nil && nodes == nil:
		return c.lostPlace(o)
	case err != nil:
		return driver.Uncertain(err)
	}
	c.locked(func() { o.nodes = nodes })
	if o.token = driver.Token(czxid); leases > 0 {
		return a.hold(false)
	}
	if err := a.look(ctx); err != nil {
		return a.uncertain(err)
	}
	if err := a.checkKind(ctx); err != nil {
		return err
	}
	return a.settle(ctx, false)
}

// create makes the node and looks at what is before it.
func (a *call) create(ctx context.Context) error {
	c, o := a.c, a.o
	k, err := c.keeperFor(ctx, a.timeout)
	if err != nil {
		return err
	}
	if o.strays != nil && errors.Is(o.strays.session.Err(), zk.ErrUnheard) {
		// The earlier place may last as long as that session, before the new one (P7).
		if _, err := c.erase(ctx, k, o.name, o.guid, o.mode); err != nil {
			return err
		}
		if o.strayKnown {
			o.strays = nil
		}
	}
	c.mu.Lock()
	c.moveLocked(o, k)
	o.mode, o.lockDelay = a.req.Mode, a.req.LockDelay
	c.mu.Unlock()
	if a.req.Mode == driver.Slot {
		err = a.createSlots(ctx)
	} else {
		err = a.createNode(ctx)
	}
	switch {
	case err == nil:
		return a.settle(ctx, false)
	case errors.Is(err, errGone):
		return driver.ErrNotHeld // somebody has deleted the node at once
	}
	return err
}

// created takes in the answer to the creation of the node, which is the first of the replies. An error
// of the whole says that the answers to the others are missing, at least.
func (a *call) created(replies []zk.Reply, err error) error {
	if len(replies) == 0 {
		return err // a parent is missing and could not be made: nothing was made for certain
	}
	made := &replies[0]
	switch {
	case made.Err == nil:
	case notDone(made.Err):
		return fmt.Errorf("making a node: %w", made.Err)
	case errors.Is(made.Err, zk.ErrNotSent):
		return fmt.Errorf("no answer from ZooKeeper: %w", made.Err)
	default:
		return a.uncertain(made.Err)
	}
	a.c.locked(func() { a.o.nodes = []string{made.Path} })
	if err != nil {
		return a.uncertain(err)
	}
	a.o.token = driver.Token(made.Zxid)
	return nil
}

// notDone reports whether a server's answer says that an operation certainly has no effect. That the session is
// over does not: an old leader may say so.
func notDone(err error) bool {
	var code zk.Code
	return errors.As(err, &code) && code.NotDone()
}

// freshSince is since when the session's timeout must run for a hold that is taken now. A claim counts from
// there too, and most of it must be left (P7).
func (a *call) freshSince() driver.Instant {
	return a.c.clock.Now().Add(-min(a.req.TTL, a.timeout, 2*a.c.caps.Poll) / 3)
}

// look sees what is before the node now.
func (a *call) look(ctx context.Context) error {
	if a.req.Mode == driver.Slot {
		return a.lookSlots(ctx)
	}
	replies, err := a.o.keeper.refresh(ctx, a.freshSince(), zk.Children(path.Dir(a.o.nodes[0]), nil))
	if err != nil {
		return err
	}
	return a.see(replies[0])
}

// settle turns a place with nothing before it into a hold.
func (a *call) settle(ctx context.Context, claim bool) error {
	if a.req.Mode == driver.Slot {
		return a.settleSlots(ctx, claim)
	}
	if a.view.blocker != "" {
		return errBlocked
	}
	return a.hold(claim)
}

// hold notes a hold. It is trusted from the sending of the last write of its session that was answered: a session
// is all that a hold hangs on (P2). A server may have said that the session is over while the answers were read that
// make a hold of the place. Losses are told of holds only, so this one's outcome is unknown instead.
func (a *call) hold(claim bool) error {
	c, o := a.c, a.o
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(o)
	if o.keeper.trust.Over {
		o.state = doubtful
		c.expireAtLocked(o, c.clock.Now().Add(a.timeout))
		return driver.Uncertain(errOver)
	}
	o.state, o.claim = held, claim
	a.grant = driver.Grant{
		Request: *a.req, Token: o.token, Block: 1,
		Since: o.keeper.trust.Since, Valid: min(a.req.TTL, a.timeout-a.req.LockDelay), Claim: claim, Contended: a.view.behind,
	}
	stays := a.req.TTL + a.req.LockDelay
	if claim {
		a.grant.Valid = min(a.grant.Valid, 2*c.caps.Poll)
		stays = a.grant.Valid
	}
	c.expireAtLocked(o, a.grant.Since.Add(stays))
	if c.onRevoke != nil {
		c.lookSoonLocked(o)
	}
	return nil
}

// line notes a place in the queue, and says what is before it.
func (a *call) line() error {
	c, o := a.c, a.o
	c.mu.Lock()
	defer c.mu.Unlock()
	p := o.place
	if p == nil {
		p = &place{news: make(chan struct{}, 1)}
		p.watch = zk.NewWatch(func(zk.Event) { p.wake() })
	}
	o.state, o.place = queued, p
	if !p.armed {
		p.blocker, p.leases = a.view.blocker, a.view.leases
	}
	c.expireAtLocked(o, c.clock.Now().Add(c.caps.PlaceLife(a.view.ahead)))
	return &driver.HeldError{Name: a.req.Name, Queued: a.view.queued, Ahead: a.view.ahead}
}

// uncertain notes that nobody knows what has become of the node.
func (a *call) uncertain(err error) error {
	c, o := a.c, a.o
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(o)
	o.state = doubtful
	c.expireAtLocked(o, c.clock.Now().Add(a.timeout))
	return driver.Uncertain(err)
}

// takeBack deletes the node that is of no use, and returns why. If that has no answer, the caller withdraws.
func (a *call) takeBack(ctx context.Context, why error) error {
	_, err := a.o.keeper.one(ctx, zk.Delete(a.o.nodes[0], zk.AnyVersion))
	if err != nil && !errors.Is(err, zk.NoNode) {
		return a.uncertain(fmt.Errorf("%w: and the node that was of no use could not be deleted: %v", err, why))
	}
	a.removed()
	return why
}

// removed notes that the node is deleted.
func (a *call) removed() {
	a.c.locked(func() { a.o.state, a.o.nodes, a.o.until = asking, nil, 0 })
}
