package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, nil, c.clock.Now())
}

// asking is a request for a hold or, of a waiter, for a place.
type asking struct {
	*client
	req    driver.Request // as the caller has it
	stored driver.Request // as it is stored
	waiter *waiter        // nil: it does not wait
	sent   driver.Instant // read before anything is sent (P1)
	grant  driver.Grant
	answer error // what the store says: nil, or why there is no grant
}

// ask takes the hold or, for a waiter, a place. It tries the one statement that takes a name that nobody uses, then
// those that take a place, or confirm it, without a step.
func (c *client) ask(ctx context.Context, req driver.Request, w *waiter, sent driver.Instant) (driver.Grant, error) {
	c.mu.Lock()
	err := cmp.Or(c.rules.Fits(&req), c.tombstones.Get(req.Owner, sent))
	crowd := w != nil && (w.placed || c.crowds[req.Name])
	c.mu.Unlock()
	if err != nil {
		return driver.Grant{Request: req}, err
	}
	a := &asking{client: c, req: req, stored: req, waiter: w, sent: sent}
	a.stored.Note, a.stored.Tokens = storable(req.Note), max(1, req.Tokens)
	l := look{heads: headPlaces, owner: req.Owner}
	failure, err := c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
		if c.hasShortCut(&a.stored) && !crowd {
			if taken, err := a.take(ctx, conn); taken || err != nil {
				return err
			}
		}
		if w == nil {
			return c.peekOrStep(ctx, conn, req.Name, l, a.decide)
		}
		if done, err := c.bells.join(ctx, conn, a); done || err != nil {
			return err
		}
		return c.step(ctx, conn, req.Name, l, a.decide)
	})
	switch {
	case err == nil && a.answer != nil && !driver.Gone(a.answer):
		return driver.Grant{}, a.answer
	case err == nil:
		return a.grant, a.answer
	case failure == Unknown:
		return driver.Grant{Request: req}, driver.Uncertain(err)
	}
	return driver.Grant{}, err
}

// decide asks the record.
func (a *asking) decide(s *change) {
	a.grant = driver.Grant{Request: a.req}
	if a.answer = s.tombstoneOf(a.req.Owner); a.answer != nil {
		return // it was withdrawn, and this request arrives late (P6)
	}
	h, err := s.Ask(a.stored, a.channel, a.waiter != nil, a.sent, s.now, &s.rules)
	if a.answer = err; err == nil {
		a.grant = s.Grant(h)
		a.grant.Request, a.grant.Valid = a.req, a.req.TTL
	}
}

// hasShortCut reports whether there are single statements that take and end such a hold: it is plain, which means
// that the columns of its row can hold it. In SQLite they would save nothing.
func (c *client) hasShortCut(req *driver.Request) bool {
	return c.dialect != SQLite && req.Mode == driver.Exclusive && req.MinHold == 0 && req.Tokens < 2
}

// take takes a name that nobody uses, in one statement. It reports false if the name is in use, or is new to MySQL, or
// if the server's life is to be read again.
func (a *asking) take(ctx context.Context, conn *sql.Conn) (taken bool, err error) {
	open, token, r := a.opening.Load(), int64(0), &a.stored
	q := a.statements.bound(takeText[a.dialect],
		r.Name, r.Owner, a.channel, micros(r.TTL), micros(r.LockDelay), r.Note, open.life, open.until)
	if a.dialect == Postgres {
		q.Each = func(scan func(...any) error) error { return scan(&token) }
		err = a.together(ctx, conn, []Statement{q})
	} else {
		var result sql.Result
		if result, err = conn.ExecContext(ctx, q.Text, q.Args...); err != nil {
			return false, err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return false, err
		}
		token, err = result.LastInsertId()
	}
	a.grant, a.answer = driver.Grant{Request: a.req, Token: driver.Token(token), Block: 1, Since: a.sent, Valid: a.req.TTL}, nil
	return token != 0, err
}

// join takes a place for the waiter without a step, or confirms the waiter's place, in one round trip, which also tells
// who is ahead of the place. It reports whether the request is answered by that. It is not if nobody holds the name, or
// if the place has gone. First are statements to run before the others.
//
// A place is inserted under a shared lock of the row, and only if the row says that there may be places of its
// kind. A step that makes room has locked the row before it reads the places. So either the step sees the place, or
// join sees what the step has done.
func (a *asking) join(ctx context.Context, conn *sql.Conn, first ...Statement) (done bool, err error) {
	a.mu.Lock()
	placed, ahead := a.waiter.placed, a.waiter.ahead
	a.mu.Unlock()
	texts, r := confirmTexts, &a.stored
	args := []any{r.Name, r.Owner, r.Tokens, int64(a.sent), micros(a.caps.PlaceLife(ahead))}
	if !placed {
		if texts, args = joinTexts, append(args, requestText(*r, a.channel), crowdOf(r)); a.dialect == SQLite {
			return false, nil
		}
	}
	all := append(first, a.statements.all(texts, args...)...)
	held, info, token, opens := &driver.HeldError{Name: a.req.Name, Ahead: -1}, "", int64(0), int64(0)
	all[len(all)-1].Each = func(scan func(...any) error) error { return scan(&held.Ahead, &info) }
	if err := a.together(ctx, conn, all); err != nil {
		return false, err
	}
	if a.noteCrowd(r.Name, held.Ahead >= 0); held.Ahead < 0 {
		return false, nil
	}
	words := strings.SplitN(info, " ", 3)
	if n, _ := fmt.Sscan(info, &token, &opens); n < 2 || len(words) < 3 || opens <= 0 { // it is not plain, or over
		s, err := a.read(ctx, conn, r.Name, look{owner: r.Owner})
		if err != nil {
			return false, err
		}
		c, err := a.client.decide(r.Name, s, a.decide)
		return c != nil && c.quiet(), err
	}
	if held.Token, held.ExpiresIn, held.Note = driver.Token(token), duration(opens), words[2]; !placed {
		held.Queued = held.Ahead + 1
	}
	a.grant, a.answer = driver.Grant{Request: a.req}, held
	return true, nil
}

// noteCrowd notes whether others wait for a name. If others do, the client's next waiter asks for a place at once, and its
// next release hands the name over.
func (c *client) noteCrowd(name string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.crowds) >= maxCrowds {
		clear(c.crowds)
	}
	if delete(c.crowds, name); is {
		c.crowds[name] = true
	}
}

// maxCrowds is for how many names a client remembers that others wait. With more it forgets all.
const maxCrowds = 1000

// storable returns a note as all databases can keep it: PostgreSQL has no text with a zero byte.
func storable(note string) string { return strings.ReplaceAll(note, "\x00", "\uFFFD") }
