package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// renewTogether renews grants that are in rows' records: shared holds, permits, blocks of
// tokens, and holds for which somebody waits. It reads the rows of up to batchSize names in
// one statement, and writes them in one round trip where the library can. It sets the errors
// of the grants that it has dealt with, and returns the others: those at names that others
// have changed meanwhile.
func (c *client) renewTogether(
	ctx context.Context, grants []driver.Grant, which []int, sent driver.Instant, errs []error,
) (rest []int) {
	at := map[string][]int{} // grants, by name
	for _, i := range which {
		at[grants[i].Name] = append(at[grants[i].Name], i)
	}
	var names []string
	for name := range at {
		names = append(names, name)
	}
	slices.Sort(names) // rows are always locked in this order
	size := batchSize
	if c.library.Together == nil && c.statements.dialect != SQLite {
		size = 16 // each is a round trip, and those that succeeded must not fail with the rest
	}
	for batch := range slices.Chunk(names, size) {
		if done, err := c.renewRows(ctx, grants, batch, at, sent, errs); err == nil {
			for _, name := range done {
				delete(at, name)
			}
		}
	}
	for _, name := range names {
		rest = append(rest, at[name]...) // these are tried one by one
	}
	return rest
}

// renewRows renews the grants at some names, and returns the names at which it did.
func (c *client) renewRows(
	ctx context.Context, grants []driver.Grant, names []string, at map[string][]int, sent driver.Instant, errs []error,
) (done []string, err error) {
	_, err = c.request(ctx, renewing, func(ctx context.Context, conn *sql.Conn) error {
		done = nil
		rows, err := c.readRows(ctx, conn, names)
		if err != nil {
			return err
		}
		var statements []Statement
		var decisions []decision
		var written []string
		for i := range rows {
			n := &rows[i]
			d, err := c.decide(n.name, &n.snapshot, func(a *attempt) {
				for _, i := range at[n.name] {
					errs[i] = a.renew(&grants[i], sent)
				}
			})
			if err != nil {
				return err
			}
			switch {
			case d.write == nil:
				done = append(done, n.name)
			case len(d.write) == 1 && !d.recheck:
				statements, decisions, written = append(statements, d.write[0]), append(decisions, d), append(written, n.name)
			}
		}
		if len(statements) == 0 {
			return nil
		}
		err = c.writeRows(ctx, conn, statements)
		for i, d := range decisions {
			if err == nil && *d.written > 0 {
				c.afterWrite(d.attempt)
				done = append(done, written[i])
			}
		}
		return err
	})
	return done, err
}

// writeRows runs statements that write one row each; in SQLite as one transaction, so there
// is one commit to wait for.
func (c *client) writeRows(ctx context.Context, conn *sql.Conn, statements []Statement) error {
	return c.withWriterLock(ctx, func(bool) error {
		if c.statements.dialect != SQLite {
			return c.together(ctx, conn, statements)
		}
		if err := c.together(ctx, conn, bound(c.statements.begin)); err != nil {
			return err
		}
		err := c.together(ctx, conn, append(statements, bound(c.statements.commit)...))
		if err != nil {
			c.discard(conn) // with what it has not committed
		}
		return err
	})
}

// renew renews a hold of the record.
func (a *attempt) renew(g *driver.Grant, sent driver.Instant) error {
	h := a.Renew(g.Owner, sent, a.now)
	if h == nil {
		return a.reasonGone(g.Owner)
	}
	h.HandedOver(g)
	a.last = max(a.last, h.Token)
	return nil
}

// readRows reads the rows of some names, in the order of the names as Go compares them.
func (c *client) readRows(ctx context.Context, conn *sql.Conn, names []string) (rows []named, err error) {
	q, args := c.statements.list(rowsText, names, nil)
	err = c.scan(ctx, conn, &q, args, func(r *sql.Rows) error {
		var n named
		err := r.Scan(append([]any{&n.name}, n.into()...)...)
		rows = append(rows, n)
		return err
	})
	if err == nil {
		err = c.readPlaces(ctx, conn, rows)
	}
	slices.SortFunc(rows, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	return rows, err
}
