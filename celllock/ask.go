package celllock

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// Try implements driver.Driver. A refused Try puts nothing into the cell, so it is in nobody's way.
//
// Unfair (barging) changes nothing: a request that overtook a waiter would have a higher token than the
// waiter gets after it (P3).
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, &req, false)
}

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, &req, true)
}

// ask asks for a lock, or a place in its queue. A session that is over is replaced once.
func (c *client) ask(ctx context.Context, req *driver.Request, queue bool) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	if req.LockDelay > maxLockDelay || req.MinHold > maxMinHold {
		return driver.Grant{}, fmt.Errorf("%w: in a cell a lock-delay lasts at most %v, and a minimum hold %v",
			driver.ErrUnsupported, maxLockDelay, maxMinHold)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for again := false; ; again = true {
		s, err := c.sessionFor(ctx, req)
		if err != nil {
			return driver.Grant{}, c.translate(req.Name, err)
		}
		g, err := c.ask1(ctx, s, req, queue)
		if cell.ReasonOf(err) == cellv1.Reason_REASON_SESSION_OVER {
			s.end(err)
			if !again {
				continue
			}
		}
		return g, err
	}
}

// Bounds of the cell.
const (
	maxLockDelay = 10 * 60 * 1e9
	maxMinHold   = 24 * 3600 * 1e9
)

func (c *client) ask1(ctx context.Context, s *session, req *driver.Request, queue bool) (driver.Grant, error) {
	if g, err := c.confirmed(s, req); queue && (err != nil || g.Owner != "") {
		return g, err
	}
	r := c.begin(req, s)
	if r == nil {
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	}
	msg := &cellv1.AcquireRequest{
		Session: s.of.Credential(), Name: r.name, Request: r.request, Mode: cell.ModeOf(req.Mode),
		Slots: int32(req.Slots), Permits: int32(req.Permits), Queue: queue, Tokens: int32(req.Tokens), Note: req.Note,
		MinHold: durationpb.New(req.MinHold),
	}
	var resp *cellv1.AcquireResponse
	var sent driver.Instant
	lost := false // the answer of a member, which may do what it was asked after another one has refused it
	// A Try goes to one member. Were it repeated at another one, which refuses it, the first call could still
	// arrive, and nobody would know of the hold (P6).
	err := c.cell.Do(ctx, queue, func(ctx context.Context, m *cell.Member) error {
		sent = c.clock.Now()
		answer, err := m.Locks.Acquire(ctx, msg)
		if err == nil {
			resp = answer
		}
		lost = lost || err != nil && !cell.Certain(err)
		return err
	})
	if err != nil {
		c.end(r, cell.Certain(err) && !lost)
		given := c.translate(req.Name, err)
		if lost && cell.Certain(err) && !driver.Gone(given) {
			given = driver.Uncertain(err)
		}
		return driver.Grant{Request: *req, Handle: s}, given
	}
	return c.answered(r, req, resp, sent)
}

// confirmed answers for a place of which the parked call has told within the last poll: that call has
// confirmed it.
func (c *client) confirmed(s *session, req *driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.recordLocked(req.Name, req.Owner)
	if r == nil || r.session != s || s.over {
		return driver.Grant{}, nil
	}
	places := s.of.Places()
	switch {
	case r.state == held && r.claim && c.clock.Now() < r.until:
		return c.grantLocked(r, req), nil
	case r.state == queued && places.Since > c.clock.Now().Add(-places.Valid/2):
		c.placedLocked(r, places.Since)
		return driver.Grant{}, &driver.HeldError{Name: req.Name, Ahead: r.ahead}
	}
	return driver.Grant{}, nil
}

// answered takes in what the cell says to a request that was sent then.
func (c *client) answered(r *record, req *driver.Request, resp *cellv1.AcquireResponse, sent driver.Instant) (driver.Grant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.asks--
	if r.revision != 0 && r.revision != resp.Revision && r.state != leaving {
		c.forgetLocked(r) // what it had is gone, and this is another
	}
	r.places = r.places.Later(sent, resp.Places)
	c.takeLocked(r, &cellv1.Holding{
		Name: r.name, Request: r.request, Token: resp.Token, Claim: resp.Claim, Contended: resp.Contended,
		Ahead: resp.Ahead, Revision: resp.Revision,
	})
	switch {
	case r.session.over:
		c.forgetLocked(r)
		return driver.Grant{}, driver.ErrNotHeld
	case r.state == held:
		return c.grantLocked(r, req), nil
	case r.state == queued:
		r.ahead = int(resp.Ahead)
		c.placedLocked(r, sent)
	}
	return driver.Grant{}, heldError(req.Name, resp.Ahead, resp.Held)
}

// heldError says who is in the way of a request, as far as the cell has said it.
func heldError(name string, ahead int32, by *cellv1.HeldBy) error {
	return &driver.HeldError{
		Name: name, Ahead: int(ahead), Note: by.GetNote(), Token: driver.Token(by.GetToken()), Queued: int(by.GetQueued()),
	}
}

// Wait implements driver.Queuer. The parked call of the session tells of the grant.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	k := c.keyOf(req.Name, req.Owner)
	for {
		c.mu.Lock()
		r := c.records[k]
		switch {
		case c.isClosed:
			c.mu.Unlock()
			return driver.Grant{}, driver.ErrClosed
		case r == nil || r.state != queued && r.state != held:
			c.mu.Unlock()
			return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
		case r.state == held:
			g := c.grantLocked(r, &req)
			c.mu.Unlock()
			return g, nil
		}
		c.mu.Unlock()
		select {
		case <-r.news:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// translate returns an error of the cell in the words of package driver.
func (c *client) translate(name string, err error) error {
	p := cell.ProblemOf(err)
	if p == nil {
		switch {
		case err == nil, errors.Is(err, driver.ErrClosed), cell.NotSent(err):
			return err
		case c.life.Err() != nil:
			return driver.ErrClosed
		}
		return driver.Uncertain(err)
	}
	switch p.Reason {
	case cellv1.Reason_REASON_HELD:
		return heldError(name, 0, p.Held)
	case cellv1.Reason_REASON_MISMATCH:
		return fmt.Errorf("%w: %w", driver.ErrMismatch, err)
	case cellv1.Reason_REASON_NOT_HELD, cellv1.Reason_REASON_SESSION_OVER, cellv1.Reason_REASON_STALE:
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	case cellv1.Reason_REASON_BROKEN:
		return fmt.Errorf("%w: %w", driver.ErrBroken, err)
	case cellv1.Reason_REASON_UNCERTAIN:
		return driver.Uncertain(err)
	}
	return err
}
