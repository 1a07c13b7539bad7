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
// that says so is behind the others (P7).
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	for {
		g, p, k, err := c.proceed(ctx, &req)
		if err != errBlocked {
			return g, err
		}
		select {
		case <-p.news:
			c.locked(func() { p.armed, p.blocker = false, "" })
		case <-ctx.Done():
			return driver.Grant{}, k.unanswered(ctx.Err())
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// proceed goes on with the place of a request. With errBlocked it returns the place, and its keeper. It is a function
// of its own so that its frame is gone while the caller waits: a thousand waiters have stacks of half the size.
//
//go:noinline
func (c *client) proceed(ctx context.Context, req *driver.Request) (g driver.Grant, p *place, k *keeper, err error) {
	timeout, err := c.admit(ctx, req)
	if err != nil {
		return g, nil, nil, err
	}
	o := c.known(req.Name, req.Owner)
	if o == nil {
		return g, nil, nil, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	if err := o.lock(ctx); err != nil {
		return g, nil, nil, err
	}
	defer func() { <-o.busy }()
	a := &call{c: c, o: o, req: req, timeout: timeout}
	p, k = o.place, o.keeper
	err = a.step(ctx)
	return a.grant, p, k, err
}

// step goes on with a place. It returns errBlocked if there is a watch on what is in the way.
func (a *call) step(ctx context.Context) error {
	c, o, p := a.c, a.o, a.o.place
	if c.life.Err() != nil {
		return driver.ErrClosed
	}
	if c.stateOf(o) != queued || p == nil || o.keeper.session.Err() != nil {
		return driver.ErrHeld // Enqueue takes another place, or tells what became of this
	}
	if p.armed {
		select {
		case <-p.news: // it came after the last Wait
			c.locked(func() { p.armed, p.blocker = false, "" })
		default:
			return errBlocked
		}
	}
	for {
		if p.blocker == "" {
			if err := a.look(ctx); errors.Is(err, errGone) {
				c.lostPlace(o)
				return driver.ErrHeld
			} else if err != nil {
				return err
			}
			if err := a.settle(ctx, true); err != errBlocked {
				return err
			}
			c.locked(func() { p.blocker, p.leases = a.view.blocker, a.view.leases })
		}
		armed, err := a.arm(ctx, p)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if p.armed = armed; !armed {
			p.blocker = ""
		}
		c.mu.Unlock()
		if armed {
			return errBlocked
		}
	}
}

// arm watches what is waited for. It reports false if that is gone already.
func (a *call) arm(ctx context.Context, p *place) (bool, error) {
	op := zk.GetData(p.blocker, p.watch) // as Curator: unlike exists it leaves no watch on a node that is not there
	if p.leases {
		op = zk.Children(p.blocker, p.watch)
	}
	reply, err := a.o.keeper.one(ctx, op)
	switch {
	case errors.Is(err, zk.NoNode):
		return false, nil
	case err == nil && p.leases && len(parseChildren(reply.Children).entries)+a.req.Permits <= a.req.Slots:
		return false, nil // some have gone since they were counted
	}
	return err == nil, err
}
