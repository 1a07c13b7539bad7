package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// withdrawnFor is how long a withdrawn request is refused that comes after its
// withdrawal, if that is more than the request's TTL (P6).
const withdrawnFor = time.Minute

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	if err := c.tombstones.Get(req.Owner, c.clock.Now()); err != nil {
		c.mu.Unlock()
		return driver.Grant{Request: req}, err
	}
	c.requests.sent(req.Owner)
	c.mu.Unlock()
	g, err := c.ask(ctx, req, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests.answered(req.Owner, errors.Is(err, driver.ErrUncertain))
	return g, err
}

// ask takes the hold or, for a waiter, a place. At a name that nobody uses it first tries the one
// statement that takes it; at one for which others wait it takes the place, or confirms it, without
// touching the name's row.
func (c *client) ask(ctx context.Context, req driver.Request, w *waiter) (driver.Grant, error) {
	sent := c.clock.Now()
	stored := req
	stored.Note, stored.Tokens = storable(req.Note), max(1, req.Tokens)
	request, change := c.request, c.change
	placed, ahead := false, 0
	if w != nil {
		request = func(ctx context.Context, urgency priority, f onConn) (Failure, error) {
			return c.requestStep(ctx, urgency, req.Name, f)
		}
		change = c.changeSurely
		c.mu.Lock()
		placed, ahead = w.placed, w.ahead
		c.mu.Unlock()
	}
	l := look{heads: headPlaces, owner: req.Owner, count: true}
	var g driver.Grant
	var answer error
	failure, err := request(ctx, taking, func(ctx context.Context, conn *sql.Conn) (err error) {
		var first *snapshot
		quick := c.hasQuick(req.Mode) && req.MinHold == 0 && stored.Tokens == 1 && !(w != nil && c.contended(req.Name))
		switch {
		case placed, w != nil && c.crowded(req.Name):
			if first, err = c.enter(ctx, conn, &stored, sent, placed, ahead, l); err != nil {
				return err
			}
		case quick && !c.crowded(req.Name):
			var token driver.Token
			token, first, err = c.quickTake(ctx, conn, &stored)
			if err != nil {
				return err
			}
			if token != 0 {
				g, answer = driver.Grant{Request: req, Token: token, Block: 1, Since: sent, Valid: req.TTL}, nil
				return nil
			}
		}
		overdue := false
		step := func(a *attempt) {
			g = driver.Grant{Request: req}
			if answer = a.tombstoneOf(req.Owner); answer != nil {
				return // it was withdrawn, and this request arrives late (P6)
			}
			h, err := a.Ask(stored, c.channel, w != nil, sent, a.now, &a.rules)
			if answer = err; err == nil {
				g = a.Grant(h)
				g.Request, g.Valid = req, req.TTL
			}
			// A place that is taken beside the row counts only where the row says that there are some.
			_, held := err.(*driver.HeldError)
			joins := held && w != nil && !placed
			a.force, overdue = joins && a.crowd != crowdOf(&stored), joins && a.overdue
		}
		if w != nil && !placed && !c.contended(req.Name) {
			// One of many that come at once marks the crowd. The others need not touch the row.
			if err = c.changeOnce(ctx, conn, req.Name, first, l, step); err == errCollided {
				c.forgetCollision(req.Name)
				if first, err = c.enter(ctx, conn, &stored, sent, false, 0, l); err == nil {
					err = change(ctx, conn, req.Name, first, l, step)
				}
			}
		} else {
			err = change(ctx, conn, req.Name, first, l, step)
		}
		if err == nil && overdue {
			_ = c.prune(ctx, conn, req.Name) // the next one that comes does it
		}
		return err
	})
	switch {
	case err == nil && answer != nil && !driver.Gone(answer):
		return driver.Grant{}, answer
	case err == nil:
		return g, answer
	case failure == Unknown:
		return driver.Grant{Request: req}, driver.Uncertain(err)
	}
	return driver.Grant{}, err
}

// hasQuick reports whether there are single statements that take and end a hold of this
// mode. They do where nobody else uses the name, and the hold has no minimum and one token.
// In SQLite they would save nothing, and a refused one would wait for the writer lock.
func (c *client) hasQuick(m driver.Mode) bool {
	return m == driver.Exclusive && c.statements.dialect != SQLite
}

// quickTake takes a name that nobody uses, in one statement. If the name is in use it
// returns no token, and the row if the statement tells that too.
func (c *client) quickTake(ctx context.Context, conn *sql.Conn, req *driver.Request) (driver.Token, *snapshot, error) {
	q := &c.statements.take
	text, args := q.bind([]any{req.Name, req.Owner, c.channel, micros(req.TTL), micros(req.LockDelay), req.Note})
	var token int64
	if c.statements.dialect == Postgres {
		s := snapshot{rowOnly: true}
		err := conn.QueryRowContext(ctx, text, args...).Scan(append([]any{&token}, s.into()...)...)
		return driver.Token(token), &s, err
	}
	result, err := conn.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, nil, err
	}
	n, err := result.RowsAffected()
	if err != nil || n != 1 {
		return 0, nil, err
	}
	token, err = result.LastInsertId()
	return driver.Token(token), nil, err
}

// reasonGone returns the error that says why an owner has no hold.
func (a *attempt) reasonGone(owner string) error {
	if err := a.tombstoneOf(owner); err != nil {
		return err
	}
	return driver.ErrNotHeld
}

// Release implements driver.Driver.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	var many, rest []int
	for i := range grants {
		if g := &grants[i]; g.Mode == driver.Exclusive && g.Token != 0 && !g.Stray && g.MinHold == 0 && g.Block < 2 {
			many = append(many, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(many) < 2 {
		many, rest = nil, append(rest, many...)
	}
	rest = append(rest, c.releaseMany(ctx, grants, many, errs)...)
	for _, i := range rest {
		errs[i] = c.release(ctx, &grants[i])
	}
	return errs
}

func (c *client) release(ctx context.Context, g *driver.Grant) error {
	var answer error
	withdraw := g.Token == 0 || g.Stray
	remember := withdraw && !c.withdraw(g) // a request may still be under way (P6)
	if !withdraw {
		c.forget(g.Owner)
	}
	l := look{heads: headPlaces, owner: g.Owner}
	step := func(a *attempt) {
		answer = nil
		if !a.Release(g.Owner, g.MinHold, g.Token, a.now, &a.rules) && g.Token != 0 {
			answer = a.reasonGone(g.Owner)
		}
		if remember {
			a.putTombstone(tombstone{Owner: g.Owner, Until: a.now.Add(max(g.TTL, withdrawnFor))})
		}
		a.settle(a.now, &a.rules) // the next waiter gets it in this step
	}
	_, err := c.requestStep(ctx, releasing, g.Name, func(ctx context.Context, conn *sql.Conn) error {
		if seen := c.takeSeen(g.Owner); seen != nil && !withdraw && c.writers == nil {
			if err := c.changeOnce(ctx, conn, g.Name, seen, l, step); err != errCollided {
				return err
			}
		}
		var first *snapshot
		if !withdraw && c.hasQuick(g.Mode) && g.MinHold == 0 && g.Block < 2 && !c.contended(g.Name) && !c.crowded(g.Name) {
			done, found, err := c.quickRelease(ctx, conn, g)
			if done || err != nil {
				answer = nil
				return err
			}
			first = found
		}
		return c.changeSurely(ctx, conn, g.Name, first, l, step)
	})
	if err != nil {
		return err
	}
	return answer
}

// quickRelease ends an exclusive hold for which nobody waits, in one statement. It reports
// whether there was one; if not, it returns the row if the statement tells that too.
func (c *client) quickRelease(ctx context.Context, conn *sql.Conn, g *driver.Grant) (bool, *snapshot, error) {
	q := &c.statements.release
	args := []any{g.Name, g.Owner}
	if c.statements.dialect == Postgres {
		var n int64
		s := snapshot{rowOnly: true}
		text, args := q.bind(args)
		err := conn.QueryRowContext(ctx, text, args...).Scan(append([]any{&n}, s.into()...)...)
		return n == 1, &s, err
	}
	n, err := c.exec(ctx, conn, q, args...)
	return n == 1, nil, err
}

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	errs := make([]error, len(grants))
	var quick, rest []int
	for i := range grants {
		if g := &grants[i]; g.Mode == driver.Exclusive && !g.HandedOver && g.Block < 2 {
			quick = append(quick, i)
		} else {
			rest = append(rest, i)
		}
	}
	rest = append(rest, c.renewMany(ctx, grants, quick, errs)...)
	if len(rest) > 1 {
		rest = c.renewTogether(ctx, grants, rest, sent, errs)
	}
	for _, i := range rest {
		errs[i] = c.renew(ctx, &grants[i], sent)
	}
	renewals := make([]driver.Renewal, len(grants))
	for i, err := range errs {
		if err != nil {
			renewals[i].Err = err
		} else {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		}
	}
	return renewals
}

func (c *client) renew(ctx context.Context, g *driver.Grant, sent driver.Instant) error {
	var answer error
	_, err := c.requestStep(ctx, renewing, g.Name, func(ctx context.Context, conn *sql.Conn) error {
		return c.changeSurely(ctx, conn, g.Name, nil, look{heads: headPlaces}, func(a *attempt) {
			answer = a.renew(g, sent)
		})
	})
	if err != nil {
		return err
	}
	return answer
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	sent := c.clock.Now()
	var answer error
	_, err := c.requestStep(ctx, taking, g.Name, func(ctx context.Context, conn *sql.Conn) error {
		return c.changeSurely(ctx, conn, g.Name, nil, look{heads: headPlaces}, func(a *attempt) {
			h := a.Downgrade(g.Owner, sent, a.now)
			if answer = nil; h == nil {
				answer = a.reasonGone(g.Owner)
				return
			}
			g.Token = h.Token
			a.settle(a.now, &a.rules) // other readers may come in now
		})
	})
	if err = errors.Join(err, answer); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Claim = driver.Shared, sent, g.TTL, false
	return g, nil
}

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	var answer error
	_, err := c.requestStep(ctx, taking, name, func(ctx context.Context, conn *sql.Conn) error {
		return c.changeSurely(ctx, conn, name, nil, look{heads: headPlaces}, func(a *attempt) {
			answer = driver.ErrNotHeld
			if h, ok := a.Record.Break(token); ok {
				answer, a.broken = nil, &h
				a.putTombstone(tombstone{Owner: h.Owner, Broken: true, Until: h.Expires})
				a.settle(a.now, &a.rules)
			}
		})
	})
	return errors.Join(err, answer)
}

// storable returns a note as all databases can keep it: PostgreSQL has no text with
// a zero byte.
func storable(note string) string { return strings.ReplaceAll(note, "\x00", "\uFFFD") }
