package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// withdrawnFor is how long a withdrawn request is refused that comes after its withdrawal, if that is more than the
// request's TTL (P6).
const withdrawnFor = time.Minute

// batchSize is how many holds are renewed or released together.
const batchSize = 256

// Release implements driver.Driver. Many plain holds for which nobody waits end in one round trip.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	var many, single []int
	for i := range grants {
		if g := &grants[i]; len(grants) > 1 && c.isPlain(g) {
			many = append(many, i)
		} else {
			single = append(single, i)
		}
	}
	slices.SortFunc(many, func(i, j int) int { return cmp.Compare(grants[i].Name, grants[j].Name) }) // see statements
	for batch := range slices.Chunk(many, batchSize) {
		single = append(single, c.releaseMany(ctx, grants, batch, errs)...)
	}
	for _, i := range single {
		errs[i] = c.release(ctx, &grants[i])
	}
	return errs
}

// isPlain reports whether one statement may end a hold.
func (c *client) isPlain(g *driver.Grant) bool {
	return g.Token != 0 && !g.Stray && c.hasShortCut(&g.Request) && g.Block < 2
}

// releaseMany releases some plain holds, and returns those that others wait for, or that are gone.
func (c *client) releaseMany(ctx context.Context, grants []driver.Grant, which []int, errs []error) (rest []int) {
	ended := make([]int64, len(which))
	_, err := c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error {
		var all []Statement
		for i, of := range which {
			if ended[i] == 0 {
				end := c.statements.bound(freeText, grants[of].Name, grants[of].Owner)
				end.Changed = &ended[i]
				all = append(all, end)
			}
		}
		err := c.together(ctx, conn, all)
		if err != nil && c.dialect == Postgres { // the round trip is one transaction
			clear(ended)
		}
		return err
	})
	for i, of := range which {
		if ended[i] == 0 {
			if errs[of] = err; err == nil {
				rest = append(rest, of)
				continue
			}
		}
		c.forget(grants[of].Owner) // also if the outcome is not known (P9)
		c.bells.lower(ctx, grants[of].Owner)
	}
	return rest
}

// release releases one grant, or withdraws a request.
func (c *client) release(ctx context.Context, g *driver.Grant) error {
	var answer error
	withdraw := g.Token == 0 || g.Stray
	until := max(g.TTL, withdrawnFor)
	answered := c.forget(g.Owner)
	remember := g.Stray || withdraw && !answered // the store has to, because a request may be under way (P6)
	c.mu.Lock()
	crowd := c.crowds[g.Name]
	if now := c.clock.Now(); withdraw && !remember {
		c.tombstones.Put(g.Owner, driver.ErrNotHeld, now, now.Add(until))
	}
	c.mu.Unlock()
	step := func(a *change) {
		if answer = nil; !a.Release(g.Owner, g.MinHold, g.Token, a.now, &a.rules) && g.Token != 0 {
			answer = a.reasonGone(g.Owner)
		}
		if remember {
			a.putTombstone(tombstone{Owner: g.Owner, Until: a.now.Add(until)})
		}
		a.settle(a.now, &a.rules) // the next waiter gets it in this step
	}
	l := look{heads: headPlaces, owner: g.Owner}
	plain := c.isPlain(g)
	end := func(ctx context.Context, conn *sql.Conn, then ...Statement) error {
		if plain {
			if done, err := c.free(ctx, conn, g, crowd, len(then) > 0); done || err != nil {
				answer = nil
				return err
			}
		}
		return c.step(ctx, conn, g.Name, l, step, then...)
	}
	done, err := c.bells.use(ctx, g.Owner, false, func(ctx context.Context, conn *sql.Conn) error {
		return end(ctx, conn, c.bells.letGo(g.Owner)) // in the round trip of the commit
	})
	if !done || err != nil {
		_, err = c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error { return end(ctx, conn) })
		c.bells.lower(ctx, g.Owner)
	}
	return cmp.Or(err, answer)
}

// free ends a plain hold in one statement or, where others wait, hands the name over in one round trip to one that asks
// for a plain hold. It reports false if it has done nothing: then the hold is gone, or the row is to be read. Crowd says
// that others wait, most likely; bell that the owner has a bell.
func (c *client) free(ctx context.Context, conn *sql.Conn, g *driver.Grant, crowd, bell bool) (bool, error) {
	if !crowd {
		if n, err := c.exec(ctx, conn, c.statements.bound(freeText, g.Name, g.Owner)); n == 1 || err != nil {
			return n == 1, err
		}
	}
	open := c.opening.Load()
	pass := c.statements.all(passTexts, g.Name, g.Owner, micros(c.caps.PollInterval()), open.life, open.until)
	switch {
	case c.dialect == Postgres:
		done := false
		pass[0].Each = func(func(...any) error) error { done = true; return nil }
		err := c.together(ctx, conn, pass)
		return done, err
	case c.library.Together == nil:
		return false, nil // a client could stop in the transaction
	}
	next, token, claim, letGo := "", int64(0), int64(0), "0"
	if bell {
		letGo = "IF(@holdfast_next IS NULL, 0, RELEASE_LOCK(" + c.bells.bellOf(g.Owner) + "))"
	}
	told := Statement{Text: "SELECT COALESCE(@holdfast_next, ''), LAST_INSERT_ID(), COALESCE(@holdfast_claim, 0), " + letGo, Into: []any{&next, &token, &claim, new(any)}}
	if err := c.together(ctx, conn, append(pass, told)); err != nil {
		return false, c.rollBack(ctx, conn, err)
	}
	if next != "" {
		valid := min(duration(claim), 2*c.caps.PollInterval())
		c.pool.wake(next, driver.Grant{Token: driver.Token(token), Block: 1, Contended: true, Valid: valid, Claim: true})
	}
	return next != "", nil
}
