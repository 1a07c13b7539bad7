package celllock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// Renew implements driver.Driver. One call extends a session, and with it all its holds; before it is
// answered the cell has told what is lost.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	failed := c.extend(ctx, grants)
	var missing, handedOver []int
	c.mu.Lock()
	now := c.clock.Now()
	for i := range grants {
		g := &grants[i]
		r := c.recordLocked(g.Name, g.Owner)
		switch {
		case r == nil || !r.holds(g):
			missing = append(missing, i)
		case r.until != 0 && now >= r.until.Add(-r.delay):
			out[i].Err = driver.ErrNotHeld
		case failed[r.session] != nil:
			out[i].Err = failed[r.session]
		default:
			out[i].Since, out[i].Valid = r.lastsLocked(&g.Request)
			c.lastsUntilLocked(r, &g.Request, out[i].Since.Add(out[i].Valid))
			if g.HandedOver {
				handedOver = append(handedOver, i)
			}
		}
	}
	c.mu.Unlock()
	c.each(handedOver, func(i int) {
		if err := c.change(ctx, &grants[i], &cellv1.SetNoteRequest{Token: int64(grants[i].Token)}); err != nil {
			out[i] = driver.Renewal{Err: err}
		}
	})
	c.each(missing, func(i int) { out[i].Err = c.why(ctx, &grants[i]) })
	return out
}

// holds reports whether a record is the hold of a grant.
func (r *record) holds(g *driver.Grant) bool {
	return r.state == held && (g.Token == 0 || r.token == g.Token&^(block-1))
}

// atATime is how many holds are asked for at the same time.
const atATime = 64

// each calls a function for some of a batch, several at a time.
func (c *client) each(some []int, do func(int)) {
	var calls sync.WaitGroup
	room := make(chan struct{}, atATime)
	for _, i := range some {
		room <- struct{}{}
		calls.Go(func() {
			do(i)
			<-room
		})
	}
	calls.Wait()
}

// extend extends the sessions of holds and makes whole holds of claims, and returns which it could not.
func (c *client) extend(ctx context.Context, grants []driver.Grant) map[*session]error {
	claims := map[*session][]*cellv1.Claim{}
	c.mu.Lock()
	for i := range grants {
		r := c.recordLocked(grants[i].Name, grants[i].Owner)
		if r == nil || !r.holds(&grants[i]) {
			continue
		}
		of := claims[r.session]
		if r.claim {
			of = append(of, &cellv1.Claim{Name: r.name, Request: r.request})
		}
		claims[r.session] = of
	}
	c.mu.Unlock()
	failed := map[*session]error{}
	for s, of := range claims {
		err := s.of.Extend(ctx, of...)
		if errors.Is(err, cell.ErrSessionOver) || cell.ReasonOf(err) == cellv1.Reason_REASON_SESSION_OVER {
			s.end(err)
			err = nil // its holds are missing now
		}
		failed[s] = err
	}
	return failed
}

// change changes a hold in the cell.
func (c *client) change(ctx context.Context, g *driver.Grant, m *cellv1.SetNoteRequest) error {
	s, err := c.sessionOf(ctx, g)
	if err != nil {
		return err
	}
	k := c.keyOf(g.Name, g.Owner)
	m.Session, m.Name, m.Request = s.of.Credential(), k.name, k.request
	_, err = cell.Ask(ctx, c.cell, true, func(ctx context.Context, at *cell.Member) (*cellv1.SetNoteResponse, error) {
		return at.Locks.SetNote(ctx, m)
	})
	return c.translate(g.Name, err)
}

// sessionOf returns the session that a grant belongs to.
func (c *client) sessionOf(ctx context.Context, g *driver.Grant) (*session, error) {
	if s, ok := g.Handle.(*session); ok {
		return s, nil
	}
	c.mu.Lock()
	r := c.recordLocked(g.Name, g.Owner)
	c.mu.Unlock()
	if r != nil {
		_, err := r.session.opened(ctx)
		return r.session, err
	}
	return c.sessionFor(ctx, &g.Request)
}

// why asks what became of a hold that the client does not know: broken, or not held.
func (c *client) why(ctx context.Context, g *driver.Grant) error {
	err := c.change(ctx, g, &cellv1.SetNoteRequest{})
	switch {
	case err == nil && c.over(g):
		return errGivenUp
	case err == nil: // the client is releasing it
		return driver.ErrNotHeld
	case !driver.Gone(err) && cell.ReasonOf(err) != 0:
		return driver.ErrNotHeld
	}
	return err
}

// over reports whether the client has given up the session of a grant.
func (c *client) over(g *driver.Grant) bool {
	s, known := g.Handle.(*session)
	c.mu.Lock()
	defer c.mu.Unlock()
	return known && s.over
}

// errGivenUp says that a hold is in a session which was lost by the client's clock: the cell may keep it for
// another TTL, and close the name to others meanwhile (P4).
var errGivenUp = errors.New("the client has heard nothing of its session for the TTL, and given it up")

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.sessionOf(ctx, &g)
	if err != nil {
		return driver.Grant{}, err
	}
	k := c.keyOf(g.Name, g.Owner)
	_, err = cell.Ask(ctx, c.cell, true, func(ctx context.Context, m *cell.Member) (*cellv1.DowngradeResponse, error) {
		return m.Locks.Downgrade(ctx, &cellv1.DowngradeRequest{Session: s.of.Credential(), Name: k.name, Request: k.request})
	})
	if err != nil {
		return driver.Grant{}, c.translate(g.Name, err)
	}
	g.Mode, g.Since, g.Valid, g.HandedOver, g.Claim = driver.Shared, renewal.Since, renewal.Valid, false, false
	return g, nil
}

// Release implements driver.Driver. What may arrive later finds that the request is over (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	batches := map[*session][]int{}
	for i := range grants {
		s, err := c.sessionOf(ctx, &grants[i])
		if err != nil {
			errs[i] = c.translate(grants[i].Name, err)
			continue
		}
		batches[s] = append(batches[s], i)
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
	msg := &cellv1.ReleaseRequest{Session: s.of.Credential()}
	for _, i := range some {
		g := &grants[i]
		k := c.keyOf(g.Name, g.Owner)
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
		s.end(err)
		outcomes, err = slices.Repeat([]cellv1.Reason{cellv1.Reason_REASON_NOT_HELD}, len(some)), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, i := range some {
		switch {
		case err != nil:
			errs[i] = c.translate(grants[i].Name, err)
			continue
		case n >= len(outcomes) || grants[i].Token == 0 && outcomes[n] == cellv1.Reason_REASON_NOT_HELD:
		case outcomes[n] == cellv1.Reason_REASON_NOT_HELD && repeated: // by that call, or lost before
		case outcomes[n] == cellv1.Reason_REASON_NOT_HELD:
			errs[i] = driver.ErrNotHeld
		case outcomes[n] == cellv1.Reason_REASON_BROKEN:
			errs[i] = driver.ErrBroken
		}
		if r := c.recordLocked(grants[i].Name, grants[i].Owner); r != nil && r.session == s {
			c.forgetLocked(r)
		}
	}
}
