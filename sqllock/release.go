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

// Release implements driver.Driver.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	var many, single []int
	for i := range grants {
		if g := &grants[i]; g.Token != 0 && !g.Stray {
			many = append(many, i)
		} else {
			single = append(single, i)
		}
	}
	if len(many) < 2 {
		many, single = nil, append(single, many...)
	}
	for batch := range slices.Chunk(many, batchSize) {
		single = append(single, c.releaseMany(ctx, grants, batch, errs)...)
	}
	for _, i := range single {
		errs[i] = c.release(ctx, &grants[i])
	}
	return errs
}

// releaseMany releases grants at names for which nobody waits, in one transaction, and returns the others.
func (c *client) releaseMany(ctx context.Context, grants []driver.Grant, which []int, errs []error) (rest []int) {
	rest = c.batch(ctx, releasing, grants, which, errs, nil, (*change).release)
	for _, i := range which {
		if !slices.Contains(rest, i) {
			c.forget(grants[i].Owner)
			c.bells.lower(ctx, grants[i].Owner)
		}
	}
	return rest
}

// release ends the owner's hold, or its place, and tells whether there was a hold.
func (a *change) release(g *driver.Grant) error {
	if !a.Release(g.Owner, g.MinHold, g.Token, a.now, &a.rules) && g.Token != 0 {
		return a.reasonGone(g.Owner)
	}
	return nil
}

// release releases one grant, or withdraws a request.
func (c *client) release(ctx context.Context, g *driver.Grant) error {
	var answer error
	withdraw := g.Token == 0 || g.Stray
	remember := withdraw && !c.withdraw(g) // a request may still be under way (P6)
	if !withdraw {
		c.forget(g.Owner)
	}
	step := func(a *change) {
		answer = a.release(g)
		if remember {
			a.putTombstone(tombstone{Owner: g.Owner, Until: a.now.Add(max(g.TTL, withdrawnFor))})
		}
		a.settle(a.now, &a.rules) // the next waiter gets it in this step
	}
	l := look{heads: headPlaces, owner: g.Owner}
	plain := !withdraw && c.hasShortCut(&g.Request) && g.Block < 2
	end := func(ctx context.Context, conn *sql.Conn, then ...Statement) error {
		if plain {
			if done, err := c.free(ctx, conn, g, then...); done || err != nil {
				answer = nil
				return err
			}
		}
		return c.step(ctx, conn, g.Name, l, step, then...)
	}
	done, err := c.bells.release(ctx, g.Owner, end)
	if !done || err != nil {
		_, err = c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error { return end(ctx, conn) })
		c.bells.lower(ctx, g.Owner)
	}
	return cmp.Or(err, answer)
}

// free ends a plain hold in one statement, or hands the name over to a waiter that asks for a plain one. It reports
// false if it has done nothing: then the hold is gone, or the row is to be read. Then are statements that follow: of
// an owner that has a bell, behind which others wait, most likely.
func (c *client) free(ctx context.Context, conn *sql.Conn, g *driver.Grant, then ...Statement) (bool, error) {
	if c.dialect == MySQL {
		if len(then) == 0 {
			if n, err := c.exec(ctx, conn, c.statements.query(freeMySQL), g.Name, g.Owner); n == 1 || err != nil {
				return true, err
			}
		}
		return c.pass(ctx, conn, g, then...)
	}
	n, q := int64(0), c.statements.bound(passPostgres, g.Name, g.Owner, micros(c.caps.PollInterval()))
	q.Into = []any{&n, new(int64)}
	err := c.together(ctx, conn, []Statement{q})
	return n == 1, err
}

// pass hands a plain hold over in MySQL, in one round trip, or does nothing.
func (c *client) pass(ctx context.Context, conn *sql.Conn, g *driver.Grant, then ...Statement) (bool, error) {
	if c.library.Together == nil {
		return false, nil // the row would be locked for several round trips
	}
	n, all := int64(0), c.statements.all(passTexts, g.Name, g.Owner, micros(c.caps.PollInterval()))
	all = append(append(all, Statement{Text: "SELECT @holdfast_done", Into: []any{&n}}), then...)
	if err := c.together(ctx, conn, all); err != nil {
		return false, c.rollBack(ctx, conn, err)
	}
	return n == 1, nil
}

// withdraw forgets an owner whose request is withdrawn, and reports whether the store has answered all its
// requests, of which this client has sent all. Then none can be under way to the store, and a request that comes to
// this client later is refused by the client's own tombstone (P6). Otherwise the store has to keep one.
func (c *client) withdraw(g *driver.Grant) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, g.Owner)
	if !c.requests.allAnswered(g.Owner) || g.Stray {
		return false
	}
	now := c.clock.Now()
	c.tombstones.Put(g.Owner, driver.ErrNotHeld, now, now.Add(max(g.TTL, withdrawnFor)))
	return true
}

// requestLog knows of which owners the store has answered all requests. No request of such an owner can still
// arrive, so the store need not keep a tombstone when it is withdrawn (P6): rows with many tombstones are slow. The
// log covers the last owners only; for all others the store keeps a tombstone. The client's mutex guards it.
type requestLog struct {
	underWay map[string]int // requests, by owner
	known    map[string]bool
	last     [1024]string // the owners in known, the oldest at next
	next     int
}

// sent notes that a request of the owner is sent.
func (l *requestLog) sent(owner string) {
	if l.underWay == nil {
		l.underWay, l.known = map[string]int{}, map[string]bool{}
	}
	l.underWay[owner]++
}

// answered notes that a request of the owner was answered, or that its outcome is unknown.
func (l *requestLog) answered(owner string, unknown bool) {
	if l.underWay[owner]--; l.underWay[owner] == 0 {
		delete(l.underWay, owner)
	}
	if before, again := l.known[owner]; again {
		l.known[owner] = before && !unknown
		return
	}
	delete(l.known, l.last[l.next])
	l.known[owner] = !unknown
	l.last[l.next] = owner
	l.next = (l.next + 1) % len(l.last)
}

// allAnswered reports whether all requests of the owner are known to have been answered.
func (l *requestLog) allAnswered(owner string) bool {
	return l.known[owner] && l.underWay[owner] == 0
}
