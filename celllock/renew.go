package celllock

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
)

// Renew implements driver.Driver. One call extends a session, and with it all its holds; before it is
// answered the cell has told what is lost.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if c.life.Err() != nil {
		return slices.Repeat([]driver.Renewal{{Err: driver.ErrClosed}}, len(grants))
	}
	out, failed := make([]driver.Renewal, len(grants)), c.extend(ctx, grants)
	var missing []int
	var gone []driver.Grant
	c.mu.Lock()
	for i := range grants {
		g := &grants[i]
		r, s := c.heldLocked(g), sessionOf(g)
		switch {
		case r == nil && s != nil && s.over:
			out[i].Err = errGivenUp
		case r == nil:
			missing, gone = append(missing, i), append(gone, *g)
		case r.until != 0 && c.clock.Now() >= r.until:
			out[i].Err = driver.ErrNotHeld
		case failed[s] != nil:
			out[i].Err = failed[s]
		default:
			out[i].Since, out[i].Valid = r.lastsLocked(g.TTL)
			c.endsLocked(r, out[i].Since.Add(out[i].Valid))
		}
	}
	c.mu.Unlock()
	if gone != nil { // the cell says why; what this client is releasing already it may release
		for n, err := range c.Release(ctx, gone) {
			out[missing[n]].Err = cmp.Or(err, driver.ErrNotHeld)
		}
	}
	for i := range grants {
		g := &grants[i]
		if out[i].Err == errGivenUp || g.HandedOver && out[i].Err == nil {
			if err := c.tellToken(ctx, g); err != nil { // perhaps that the cell has given it up as well
				out[i] = driver.Renewal{Err: err}
			}
		}
	}
	return out
}

// errGivenUp says that a hold is in a session which was lost by the client's clock: the cell may keep it for
// another TTL, and close the name to others meanwhile (P4).
var errGivenUp = errors.New("the client has heard nothing of its session for the TTL, and given it up")

// sessionOf returns the session that a grant belongs to, or nil if that is not known.
func sessionOf(g *driver.Grant) *session {
	s, _ := g.Handle.(*session)
	return s
}

// heldLocked returns the record of the hold of a grant, or nil.
func (c *client) heldLocked(g *driver.Grant) *record {
	r := c.recordLocked(&g.Request)
	if !r.held() || g.Token != 0 && r.token() != g.Token&^(block-1) {
		return nil
	}
	return r
}

// extend extends the sessions of holds and makes whole holds of claims, and returns which it could not.
func (c *client) extend(ctx context.Context, grants []driver.Grant) map[*session]error {
	claims, failed := map[*session][]*cellv1.Claim{}, map[*session]error{}
	c.mu.Lock()
	for i := range grants {
		if r := c.heldLocked(&grants[i]); r != nil {
			of := claims[r.session]
			if r.has.Claim {
				of = append(of, &cellv1.Claim{Name: r.name, Request: r.request})
			}
			claims[r.session] = of
		}
	}
	c.mu.Unlock()
	for s, of := range claims {
		if failed[s] = s.Extend(ctx, of...); s.Err() != nil {
			failed[s] = nil // its holds are missing now
		}
	}
	return failed
}

// tellToken tells the cell the token in use (P3).
func (c *client) tellToken(ctx context.Context, g *driver.Grant) error {
	k := c.keyOf(&g.Request)
	_, err := call(ctx, c, true, cellv1connect.LocksClient.SetNote, &cellv1.SetNoteRequest{
		Session: sessionOf(g).Credential(), Name: k.name, Request: k.request, Token: int64(g.Token),
	})
	return c.translate(g.Name, err)
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	k := c.keyOf(&g.Request)
	_, err := call(ctx, c, true, cellv1connect.LocksClient.Downgrade,
		&cellv1.DowngradeRequest{Session: sessionOf(&g).Credential(), Name: k.name, Request: k.request})
	if err != nil {
		return driver.Grant{}, c.translate(g.Name, err)
	}
	g.Mode, g.Since, g.Valid, g.HandedOver, g.Claim = driver.Shared, renewal.Since, renewal.Valid, false, false
	return g, nil
}

// Release implements driver.Driver. What may arrive later finds that the request is over (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	defer cancel()
	batches := map[*session][]int{}
	for i := range grants {
		s := sessionOf(&grants[i])
		if s == nil { // a request that was not made yet, or somebody else's hold
			s, err = c.sessionFor(ctx, &grants[i].Request)
			errs[i] = c.translate(grants[i].Name, err)
		}
		if errs[i] == nil {
			batches[s] = append(batches[s], i)
		}
	}
	for s, batch := range batches {
		for some := range slices.Chunk(batch, batchSize) {
			c.releaseSome(ctx, s, grants, some, errs)
		}
	}
	return errs
}

// batchSize is how many locks one call gives back.
const batchSize = 1000

func (c *client) releaseSome(ctx context.Context, s *session, grants []driver.Grant, some []int, errs []error) {
	msg := &cellv1.ReleaseRequest{Session: s.Credential()}
	for _, i := range some {
		g := &grants[i]
		k := c.keyOf(&g.Request)
		msg.Locks = append(msg.Locks, &cellv1.Release{
			Name: k.name, Request: k.request, Token: int64(g.Token), Retried: g.Stray, Unused: g.Token == 0 || g.MinHold == 0,
		})
	}
	var outcomes []cellv1.Reason
	repeated := false // the answer to a call that may have released them was lost
	err := c.cell.Do(ctx, true, func(ctx context.Context, m *cell.Member) error {
		r, err := m.Locks.Release(ctx, msg)
		outcomes = r.GetOutcomes()
		repeated = repeated || err != nil && !cell.Certain(err)
		return err
	})
	if cell.ReasonOf(err) == cellv1.Reason_REASON_SESSION_OVER {
		s.Over(err)
		outcomes, err = slices.Repeat([]cellv1.Reason{cellv1.Reason_REASON_NOT_HELD}, len(some)), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, i := range some {
		g := &grants[i]
		switch {
		case err != nil:
			errs[i] = c.translate(g.Name, err)
			continue
		case n >= len(outcomes):
		case outcomes[n] == cellv1.Reason_REASON_BROKEN:
			errs[i] = driver.ErrBroken
		case outcomes[n] == cellv1.Reason_REASON_NOT_HELD && g.Token != 0 && !repeated: // else released by that call, or before
			errs[i] = driver.ErrNotHeld
		}
		if r := c.recordLocked(&g.Request); r != nil && r.session == s {
			c.forgetLocked(r)
		}
	}
}
