package zklock

import (
	"context"
	"errors"
	"fmt"

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
	t, err := c.termOf(req)
	if err == nil {
		err = c.layout.checkName(req.Name)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.reserve(ctx, req.Name, req.Owner)
	if err != nil {
		return driver.Grant{}, err
	}
	defer c.unreserve(r)
	if err := c.tombstone(r.owner); err != nil {
		return driver.Grant{}, err
	}
	a := &attempt{c: c, r: r, req: req, term: t}
	var g driver.Grant
	err = c.retrying(ctx, func() (err error) {
		g, err = a.ask(ctx, queue)
		return err
	})
	return g, err
}

// ask goes on with what there is of the request, or makes its node. It may be called again after a lost
// connection: it finds the node that it has made before.
func (a *attempt) ask(ctx context.Context, queue bool) (driver.Grant, error) {
	g, err := a.again(ctx)
	if errors.Is(err, errGone) {
		g, err = a.create(ctx)
	}
	switch {
	case err != errBlocked:
		return g, err
	case queue:
		return driver.Grant{}, a.line()
	}
	return a.refuse(ctx)
}

// errBlocked says that the node is there, and others come first.
var errBlocked = errors.New("others come first")

// attempt is one call that asks for a hold, or waits for it, with the record reserved.
type attempt struct {
	c    *client
	r    *record
	req  *driver.Request
	term term
	view view
}

// view is what was before one's node when the store was last asked.
type view struct {
	blocker string // path of the node that is waited for; "": not known
	leases  bool   // a semaphore's head waits for leases, not for a node
	ahead   int
	behind  bool // others were behind it
	first   string
	queued  int

	semaphore bool // there are directories of a semaphore

	room    bool // of a semaphore: there are permits left
	told    int  // its slots, as the leases' data says; 0: that does not say
	version int32
}

// again goes on with a request of the same owner that was made before. It returns errGone if there is
// none.
func (a *attempt) again(ctx context.Context) (driver.Grant, error) {
	a.c.mu.Lock()
	state := a.r.state // who looks at a hold in the background may find it broken
	a.c.mu.Unlock()
	switch state {
	case held:
		return a.collect(ctx)
	case queued, doubtful:
		return a.confirm(ctx)
	}
	return driver.Grant{}, errGone
}

// collect returns a hold that its owner has already.
func (a *attempt) collect(ctx context.Context) (driver.Grant, error) {
	g := a.grant()
	renewal := a.c.Renew(ctx, []driver.Grant{g})[0]
	g.Since, g.Valid = renewal.Since, renewal.Valid
	return g, renewal.Err
}

// confirm looks again at a place, or at what has become of a request without an answer.
func (a *attempt) confirm(ctx context.Context) (driver.Grant, error) {
	c, r := a.c, a.r
	s := r.session
	if s == nil || s.zk.Err() != nil {
		return driver.Grant{}, c.lostPlace(r)
	}
	if r.state == doubtful || len(r.nodes) == 0 {
		return a.adopt(ctx)
	}
	if err := a.look(ctx, true); err != nil {
		if errors.Is(err, errGone) {
			return driver.Grant{}, c.lostPlace(r)
		}
		return driver.Grant{}, err
	}
	return a.settle(ctx, false)
}

// lostPlace forgets the nodes of a place. If they may be there yet, because a server has said that their
// session is over, it remembers the session: they are looked for when the owner is withdrawn.
func (c *client) lostPlace(r *record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(r)
	if s := r.session; s != nil && (s.trust.Over || s.zk.Err() != nil) {
		r.strays, r.strayKnown = s, r.state == queued
	}
	r.state = asking
	c.moveLocked(r, nil)
	return errGone
}

// adopt finds the nodes of a request whose answer was lost, in its session. A write goes before the
// read, so that the request has taken effect or never will.
func (a *attempt) adopt(ctx context.Context) (driver.Grant, error) {
	found, err := a.c.find(ctx, a.r.session, a.req.Name, a.r.guid, a.req.Mode)
	if err != nil {
		if a.r.session.zk.Err() != nil {
			return driver.Grant{}, a.c.lostPlace(a.r)
		}
		return driver.Grant{Request: *a.req}, driver.Uncertain(err)
	}
	if len(found) == 0 {
		return driver.Grant{}, a.c.lostPlace(a.r)
	}
	a.c.mu.Lock()
	a.r.nodes = found
	a.c.mu.Unlock()
	if a.req.Mode == driver.Slot {
		return a.adoptSlots(ctx)
	}
	replies, err := a.r.session.do(ctx, zk.Exists(found[0], nil))
	if err == nil {
		err = replies[0].Err
	}
	if err == nil {
		a.r.token, err = tokenOf(replies[0].Stat.Czxid)
	}
	if err == nil {
		err = a.look(ctx, true)
	}
	if err != nil {
		return driver.Grant{Request: *a.req}, driver.Uncertain(err)
	}
	if err := a.checkKind(ctx); err != nil {
		return driver.Grant{Request: *a.req}, err
	}
	return a.settle(ctx, false)
}

// create makes the node and looks at what is before it.
func (a *attempt) create(ctx context.Context) (driver.Grant, error) {
	c, r := a.c, a.r
	s, err := c.acquireSession(ctx, a.term.session)
	if err != nil {
		return driver.Grant{}, err
	}
	if r.strays != nil && errors.Is(r.strays.zk.Err(), zk.ErrUnheard) {
		// The earlier place may last as long as that session, before the new one (P7).
		found, _, err := c.findAny(ctx, s, r.name, r.guid, r.mode)
		if err == nil {
			_, err = s.deleteNodes(ctx, found)
		}
		if err != nil {
			s.leave()
			return driver.Grant{}, err
		}
		if r.strayKnown {
			r.strays = nil
		}
	}
	c.mu.Lock()
	c.moveLocked(r, s)
	r.mode, r.lockDelay = a.req.Mode, a.req.LockDelay
	c.mu.Unlock()
	err = a.createNode(ctx)
	switch {
	case err == nil:
		return a.settle(ctx, false)
	case errors.Is(err, errGone):
		err = driver.ErrNotHeld // somebody has deleted the node at once
	}
	return driver.Grant{Request: *a.req}, err
}

// settle turns a place with nothing before it into a hold.
func (a *attempt) settle(ctx context.Context, claim bool) (driver.Grant, error) {
	if a.req.Mode == driver.Slot {
		return a.settleSlots(ctx, claim)
	}
	if a.view.blocker != "" {
		return driver.Grant{}, errBlocked
	}
	return a.hold(claim)
}

// hold notes a hold and returns it. It is trusted from the sending of the last write of its session that
// was answered: a session is all that a hold hangs on. Suppose that a server says that the session is over
// while the answers are read that make a hold of the place. Losses are told of holds only, so nobody would
// be told of this one: its outcome is unknown instead.
func (a *attempt) hold(claim bool) (driver.Grant, error) {
	c, r := a.c, a.r
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leavePlaceLocked(r)
	if r.session.trust.Over {
		r.state = doubtful
		c.expireAtLocked(r, c.clock.Now().Add(a.term.session))
		return driver.Grant{Request: *a.req}, driver.Uncertain(errOver)
	}
	r.state, r.claim = held, claim
	g := a.grant()
	g.Since, g.Valid, g.Claim = r.session.trust.Since, a.term.lasts, claim
	g.Contended = a.view.behind
	stays := a.req.TTL + a.req.LockDelay
	if claim {
		g.Valid = min(g.Valid, 2*c.caps.Poll)
		stays = g.Valid
	}
	c.expireAtLocked(r, g.Since.Add(stays))
	if c.onRevoke != nil {
		c.lookSoonLocked(r)
	} else if c.fresh = append(c.fresh, r); len(c.fresh) == 1 {
		c.timer.Set(c.clock.Now().Add(watchAfter))
	}
	return g, nil
}

// grant returns the grant of the record's hold, but for its time.
func (a *attempt) grant() driver.Grant {
	return driver.Grant{Request: *a.req, Token: a.r.token, Block: 1}
}

// line notes a place in the queue, and says what is before it.
func (a *attempt) line() error {
	c, r := a.c, a.r
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.place == nil {
		r.place = &place{news: make(chan struct{}, 1), watch: zk.NewWatch()}
	}
	p := r.place
	r.state = queued
	if !p.armed {
		p.blocker, p.leases = a.view.blocker, a.view.leases
	}
	p.ahead = a.view.ahead
	c.expireAtLocked(r, c.clock.Now().Add(c.caps.PlaceLife(p.ahead)))
	return &driver.HeldError{Name: a.req.Name, Queued: a.view.queued, Ahead: a.view.ahead}
}

// unanswered notes that the outcome of a request is not known, unless nothing of it was sent.
func (a *attempt) unanswered(err error) error {
	if errors.Is(err, zk.ErrNotSent) {
		return fmt.Errorf("no answer from ZooKeeper: %w", err)
	}
	a.c.doubt(a.r, a.term)
	return driver.Uncertain(err)
}

// uncertain notes that nobody knows what has become of the node.
func (a *attempt) uncertain(err error) error {
	a.c.doubt(a.r, a.term)
	return driver.Uncertain(err)
}

// takeBack deletes the node that is of no use, and returns why. If that has no answer, the caller
// withdraws.
func (a *attempt) takeBack(ctx context.Context, why error) error {
	replies, err := a.r.session.do(ctx, zk.Delete(a.r.nodes[0], zk.AnyVersion))
	if err == nil {
		if err = replies[0].Err; errors.Is(err, zk.NoNode) {
			err = nil
		}
	}
	if err != nil {
		return a.uncertain(fmt.Errorf("%w: and the node that was of no use could not be deleted: %v", err, why))
	}
	a.removed()
	return why
}

// removed notes that the node is deleted.
func (a *attempt) removed() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.r.state, a.r.nodes, a.r.until = asking, nil, 0
}
