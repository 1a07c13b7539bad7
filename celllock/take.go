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
	return c.take(ctx, &req, false)
}

// Enqueue implements driver.Queuer. A place which the parked call has confirmed within the last poll needs no call.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	if r := c.recordLocked(&req); r.queued() && ctx.Err() == nil && c.life.Err() == nil {
		_, places := r.session.Trusted()
		if places.Since > c.clock.Now().Add(-places.Valid/2) {
			defer c.mu.Unlock()
			c.endsLocked(r, places.Since.Add(c.caps.PlaceLife(int(r.has.Ahead))))
			return driver.Grant{}, heldError(req.Name, r.has.Ahead, nil)
		}
	}
	c.mu.Unlock()
	return c.take(ctx, &req, true)
}

// take asks for a lock, or a place in its queue. A session that is over is replaced once.
func (c *client) take(ctx context.Context, req *driver.Request, queue bool) (g driver.Grant, err error) {
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return g, err
	}
	defer cancel()
	for range 2 {
		s, failed := c.sessionFor(ctx, req)
		if failed != nil {
			return driver.Grant{}, c.translate(req.Name, failed)
		}
		g, err = c.takeIn(ctx, s, req, queue)
		if cell.ReasonOf(err) != cellv1.Reason_REASON_SESSION_OVER {
			break
		}
		s.Over(err)
	}
	return g, err
}

func (c *client) takeIn(ctx context.Context, s *session, req *driver.Request, queue bool) (driver.Grant, error) {
	c.mu.Lock()
	r := c.recordLocked(req)
	if r == nil {
		r = &record{key: c.keyOf(req), session: s, news: make(chan struct{}, 1)}
		c.records[r.key] = r
	}
	if r.session != s || r.leaving {
		c.mu.Unlock()
		return driver.Grant{}, driver.ErrNotHeld // it has just ended: the caller asks under another owner
	}
	r.asks++
	c.mu.Unlock()
	msg := &cellv1.AcquireRequest{
		Session: s.Credential(), Name: r.name, Request: r.request, Mode: cell.ModeOf(req.Mode),
		Slots: int32(req.Slots), Permits: int32(req.Permits), Queue: queue, Tokens: int32(req.Tokens), Note: req.Note,
		MinHold: durationpb.New(req.MinHold),
	}
	var resp *cellv1.AcquireResponse
	var sent driver.Instant
	lost := false // the answer of a member, which may do what it was asked after another one has refused it
	// A Try goes to one member. Were it repeated at another one, which refuses it, the first call could still
	// arrive, and nobody would know of the hold (P6).
	err := c.cell.Do(ctx, queue, func(ctx context.Context, m *cell.Member) (err error) {
		sent = c.clock.Now()
		resp, err = m.Locks.Acquire(ctx, msg)
		lost = lost || err != nil && !cell.Certain(err)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	r.asks--
	g := driver.Grant{Request: *req, Handle: s}
	if err != nil {
		given := c.translate(req.Name, err)
		switch certain := cell.Certain(err); {
		case certain && lost && !driver.Gone(given):
			given = driver.Uncertain(err)
		case certain && !lost && r.asks == 0 && r.has == nil:
			c.forgetLocked(r)
		}
		return g, given
	}
	c.takeLocked(r, &cellv1.Holding{
		Token: resp.Token, Claim: resp.Claim, Contended: resp.Contended, Ahead: resp.Ahead, Revision: resp.Revision,
	})
	if r.has.GetRevision() == resp.Revision {
		r.places = r.places.Later(sent, resp.Places)
	}
	switch {
	case s.over:
		c.forgetLocked(r)
		return g, driver.Uncertain(cell.ErrSessionOver)
	case r.held():
		return c.grantLocked(r, req), nil
	case r.queued():
		c.endsLocked(r, sent.Add(c.caps.PlaceLife(int(resp.Ahead))))
	}
	return g, heldError(req.Name, resp.Ahead, resp.Held)
}

// Wait implements driver.Queuer. The parked call of the session tells of the grant.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	for {
		c.mu.Lock()
		r := c.recordLocked(&req)
		switch {
		case c.life.Err() != nil:
			c.mu.Unlock()
			return driver.Grant{}, driver.ErrClosed
		case r.held():
			defer c.mu.Unlock()
			return c.grantLocked(r, &req), nil
		case !r.queued():
			c.mu.Unlock()
			return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
		}
		c.mu.Unlock()
		select {
		case <-r.news:
		case <-c.life.Done():
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		}
	}
}

// heldError says who is in the way of a request, as far as the cell has said it.
func heldError(name string, ahead int32, by *cellv1.HeldBy) error {
	return &driver.HeldError{
		Name: name, Ahead: int(ahead), Note: by.GetNote(), Token: driver.Token(by.GetToken()), Queued: int(by.GetQueued()),
	}
}

// words are the reasons of the cell in the words of package driver.
var words = map[cellv1.Reason]error{
	cellv1.Reason_REASON_MISMATCH:     driver.ErrMismatch,
	cellv1.Reason_REASON_NOT_HELD:     driver.ErrNotHeld,
	cellv1.Reason_REASON_SESSION_OVER: driver.ErrNotHeld,
	cellv1.Reason_REASON_STALE:        driver.ErrNotHeld,
	cellv1.Reason_REASON_BROKEN:       driver.ErrBroken,
	cellv1.Reason_REASON_INVALID:      driver.ErrUnsupported,
	cellv1.Reason_REASON_UNCERTAIN:    driver.ErrUncertain,
}

// translate returns an error of the cell in the words of package driver.
func (c *client) translate(name string, err error) error {
	p := cell.ProblemOf(err)
	switch known := words[p.GetReason()]; {
	case known != nil:
		return fmt.Errorf("%w: %w", known, err)
	case p.GetReason() == cellv1.Reason_REASON_HELD:
		return heldError(name, 0, p.Held)
	case p != nil, err == nil, errors.Is(err, driver.ErrClosed), cell.NotSent(err):
		return err
	case c.life.Err() != nil:
		return driver.ErrClosed
	}
	return driver.Uncertain(err)
}
