package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, nil, c.clock.Now())
}

// ask takes the hold or, for a waiter, a place. At a name that nobody uses it first tries the one statement that
// takes it; at one for which others wait it takes the place, or confirms it, beside the name's row. Sent is read before
// anything is sent (P1).
func (c *client) ask(ctx context.Context, req driver.Request, w *waiter, sent driver.Instant) (driver.Grant, error) {
	c.mu.Lock()
	err := cmp.Or(c.rules.Fits(&req), c.tombstones.Get(req.Owner, sent))
	c.mu.Unlock()
	if err != nil {
		return driver.Grant{Request: req}, err
	}
	stored := req
	stored.Note, stored.Tokens = storable(req.Note), max(1, req.Tokens)
	var g driver.Grant
	var answer error
	decide := func(a *change) {
		g = driver.Grant{Request: req}
		if answer = a.tombstoneOf(req.Owner); answer != nil {
			return // it was withdrawn, and this request arrives late (P6)
		}
		h, err := a.Ask(stored, c.channel, w != nil, sent, a.now, &a.rules)
		if answer = err; err == nil {
			g = a.Grant(h)
			g.Request, g.Valid = req, req.TTL
		}
	}
	l := look{heads: headPlaces, owner: req.Owner, count: true}
	failure, err := c.request(ctx, taking, func(ctx context.Context, conn *sql.Conn) error {
		if w != nil {
			if done, err := c.enter(ctx, conn, &stored, w, sent, l, decide); done || err != nil {
				return err
			}
			return c.step(ctx, conn, req.Name, l, decide)
		}
		if c.hasShortCut(&stored) {
			token, err := c.take(ctx, conn, &stored)
			if g = (driver.Grant{Request: req, Token: token, Block: 1, Since: sent, Valid: req.TTL}); token != 0 || err != nil {
				answer = nil
				return err
			}
		}
		return c.peekOrStep(ctx, conn, req.Name, l, decide)
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

// hasShortCut reports whether there are single statements that take and end such a hold: it is plain, which means
// that the columns of its row can hold it. In SQLite they would save nothing.
func (c *client) hasShortCut(req *driver.Request) bool {
	return c.dialect != SQLite && req.Mode == driver.Exclusive && req.MinHold == 0 && req.Tokens < 2
}

// take takes a name that nobody uses, in one statement. It returns 0 if the name is in use, or is new to MySQL, or
// if the server's life is to be read again.
func (c *client) take(ctx context.Context, conn *sql.Conn, req *driver.Request) (token driver.Token, err error) {
	open := c.opening.Load()
	q := c.statements.bound(takeText[c.dialect],
		req.Name, req.Owner, c.channel, micros(req.TTL), micros(req.LockDelay), req.Note, open.life, open.until)
	if c.dialect == Postgres {
		q.Into = []any{&token}
		if err = c.together(ctx, conn, []Statement{q}); err == sql.ErrNoRows {
			return 0, nil
		}
		return token, err
	}
	result, err := conn.ExecContext(ctx, q.Text, q.Args...)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return 0, err
	}
	id, err := result.LastInsertId()
	return driver.Token(id), err
}

// enter takes a place beside the row of a name for which others wait, or confirms the one that the waiter has, and
// reads the name, in one round trip. It reports whether decide's answer to that is all, because there is nothing to
// write: the name may be free by now, or the place be gone.
//
// A place is inserted under a shared lock of the row, and only if the row says that there may be places of its
// kind. A step that makes room has locked the row before it reads the places. So either the step sees the place, or
// enter sees what the step has done.
func (c *client) enter(
	ctx context.Context, conn *sql.Conn, req *driver.Request, w *waiter, sent driver.Instant, l look, decide func(*change),
) (done bool, err error) {
	c.mu.Lock()
	placed, ahead := w.placed, w.ahead
	c.mu.Unlock()
	args := []any{req.Name, req.Owner, req.Tokens, int64(sent), micros(c.caps.PlaceLife(ahead))}
	var all []Statement
	switch {
	case placed:
		all = []Statement{c.statements.bound(confirmText[c.dialect], args...)}
	case c.dialect == SQLite:
		return false, nil
	default:
		all = c.statements.all(joinTexts, append(args, requestText(req, c.channel), crowdOf(req))...)
	}
	read, s := c.reading(req.Name, l)
	if err := c.together(ctx, conn, append(all, read)); err != nil {
		if !placed {
			return false, c.rollBack(ctx, conn, err)
		}
		return false, err
	}
	a, err := c.decide(req.Name, s, decide)
	if err == nil && !placed && s.ends != 0 && s.ends < s.now {
		err = c.removeEnded(ctx, conn, overText, req.Name) // two at most: see record.Record.Ask
	}
	return a != nil && a.quiet(), err
}

// removeEnded removes the places that a statement finds, if nobody has confirmed them since. Each is removed by its
// key: statements that remove several lock rows in orders that differ.
func (c *client) removeEnded(ctx context.Context, conn *sql.Conn, find string, args ...any) error {
	var places [][2]string
	if err := c.scan(ctx, conn, c.statements.bound(find, args...), func(scan func(...any) error) error {
		var p [2]string
		err := scan(&p[0], &p[1])
		places = append(places, p)
		return err
	}); err != nil {
		return err
	}
	for _, p := range places {
		if _, err := c.exec(ctx, conn, c.statements.bound(removeOverText, p[0], p[1])); err != nil {
			return err
		}
	}
	return nil
}

// storable returns a note as all databases can keep it: PostgreSQL has no text with a zero byte.
func storable(note string) string { return strings.ReplaceAll(note, "\x00", "\uFFFD") }
