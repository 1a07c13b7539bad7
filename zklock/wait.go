package zklock

import (
	"context"
	"errors"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Wait implements driver.Queuer. It watches the one node that it waits for: of a writer the node before
// its own, of a reader the nearest writer's, of a semaphore's head the leases. When that is gone it reads
// the name's nodes again. A node that has gone does not come back, so the name is free even if the server
// that says so is behind the others.
func (c *client) Wait(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	for {
		p, s := c.proceed(ctx, &req, &g, &err)
		if err != errBlocked {
			return g, err
		}
		select {
		case <-p.watch.C():
			c.fired(p)
		case <-p.news:
		case <-ctx.Done():
			return driver.Grant{}, s.unanswered(ctx.Err())
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// proceed goes on with the place of a request, and returns it. It is a function of its own so that its frame is gone
// while the caller waits: a thousand waiters have stacks of half the size.
//
//go:noinline
func (c *client) proceed(ctx context.Context, req *driver.Request, g *driver.Grant, err *error) (p *place, s *session) {
	if *err = c.alive(ctx); *err != nil {
		return nil, nil
	}
	a := &attempt{c: c, req: req}
	if a.term, *err = c.termOf(req); *err != nil {
		return nil, nil
	}
	if a.r = c.known(req.Name, req.Owner); a.r == nil {
		*err = driver.ErrHeld // no place: Enqueue tells what became of it
		return nil, nil
	}
	if *err = a.r.lock(ctx); *err != nil {
		return nil, nil
	}
	defer func() { <-a.r.busy }()
	p, s = a.r.place, a.r.session
	*g, *err = a.step(ctx)
	return p, s
}

// fired notes that what was waited for may be gone.
func (c *client) fired(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.armed, p.blocker = false, ""
}

// step goes on with a place: it returns the grant, or errBlocked if there is a watch on what is in the
// way, or another error.
func (a *attempt) step(ctx context.Context) (driver.Grant, error) {
	r, p := a.r, a.r.place
	if a.c.life.Err() != nil {
		return driver.Grant{}, driver.ErrClosed
	}
	a.c.mu.Lock()
	state := r.state
	a.c.mu.Unlock()
	if state != queued || p == nil || r.session.zk.Err() != nil {
		return driver.Grant{}, driver.ErrHeld // Enqueue takes another place, or tells what became of this
	}
	if p.armed {
		select {
		case <-p.watch.C():
			a.c.fired(p)
		default:
			return driver.Grant{}, errBlocked
		}
	}
	for {
		if p.blocker == "" {
			err := a.look(ctx, false)
			if errors.Is(err, errGone) {
				a.c.lostPlace(r)
				return driver.Grant{}, driver.ErrHeld
			}
			if err != nil {
				return driver.Grant{}, err
			}
			if g, err := a.settle(ctx, true); err != errBlocked {
				return g, err
			}
			a.c.mu.Lock()
			p.blocker, p.leases, p.ahead = a.view.blocker, a.view.leases, a.view.ahead
			a.c.mu.Unlock()
		}
		armed, err := a.arm(ctx, p)
		if err != nil {
			return driver.Grant{}, err
		}
		a.c.mu.Lock()
		p.armed = armed
		if !armed {
			p.blocker = ""
		}
		a.c.mu.Unlock()
		if armed {
			return driver.Grant{}, errBlocked
		}
	}
}

// arm watches what is waited for. It reports false if that is gone already.
func (a *attempt) arm(ctx context.Context, p *place) (bool, error) {
	op := zk.GetData(p.blocker, p.watch) // as Curator: unlike exists it leaves no watch on a node that is not there
	if p.leases {
		op = zk.Children(p.blocker, p.watch)
	}
	replies, err := a.r.session.do(ctx, op)
	switch {
	case err != nil:
		return false, err
	case errors.Is(replies[0].Err, zk.NoNode):
		return false, nil
	case p.leases && len(parseChildren(replies[0].Children).entries)+a.req.Permits <= a.req.Slots:
		return false, nil // some have gone since they were counted
	}
	return replies[0].Err == nil, replies[0].Err
}
