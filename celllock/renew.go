package celllock

import (
	"context"
	"errors"
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
		for i := range out {
			out[i].Err = err
		}
		return out
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
	err = c.cell.Do(ctx, true, func(ctx context.Context, at *cell.Member) error {
		_, err := at.Locks.SetNote(ctx, m)
		return err
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
	err = c.cell.Do(ctx, true, func(ctx context.Context, m *cell.Member) error {
		_, err := m.Locks.Downgrade(ctx, &cellv1.DowngradeRequest{
			Session: s.of.Credential(), Name: k.name, Request: k.request,
		})
		return err
	})
	if err != nil {
		return driver.Grant{}, c.translate(g.Name, err)
	}
	g.Mode, g.Since, g.Valid, g.HandedOver, g.Claim = driver.Shared, renewal.Since, renewal.Valid, false, false
	return g, nil
}
