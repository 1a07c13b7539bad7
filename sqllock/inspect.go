package sqllock

import (
	"context"
	"database/sql"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	var info driver.Info
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		return c.change(ctx, conn, name, nil, look{heads: allPlaces}, func(a *attempt) { info = a.Info(name, a.now) })
	})
	return info, err
}

// pageSize is how many rows are read at a time.
const pageSize = 500

// named is a row of a page.
type named struct {
	name string
	snapshot
}

// page reads rows in the order of their names, with all places.
func (c *client) page(ctx context.Context, q *query, args ...any) ([]named, error) {
	var page []named
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		page = nil
		if err := c.scan(ctx, conn, q, args, func(rows *sql.Rows) error {
			var n named
			err := rows.Scan(append([]any{&n.name}, n.into()...)...)
			page = append(page, n)
			return err
		}); err != nil {
			return err
		}
		return c.readPlaces(ctx, conn, page)
	})
	return page, err
}

// readPlaces reads the places of rows that were read before.
func (c *client) readPlaces(ctx context.Context, conn *sql.Conn, rows []named) error {
	at := map[string]*named{}
	for i := range rows {
		if n := &rows[i]; n.crowd != 0 || n.extra != "" {
			at[n.name] = n
		}
	}
	if len(at) == 0 {
		return nil
	}
	for batch := range slices.Chunk(slices.Collect(maps.Keys(at)), batchSize) {
		q, args := c.statements.list(placesOfText, batch, nil)
		if err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
			var name string
			var p placeRow
			err := rows.Scan(append([]any{&name}, p.fields()...)...)
			if n := at[name]; n != nil {
				n.places = append(n.places, p)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// List implements driver.Operator. It shows names in the order of their bytes.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		// No name that begins with the prefix is higher, in the order of bytes.
		end := prefix + strings.Repeat("\U0010FFFF", driver.MaxName/4)
		for last := ""; ; {
			page, err := c.page(ctx, &c.statements.used, last, prefix, end, pageSize)
			for i := range page {
				n := &page[i]
				var a *attempt
				if a, err = c.newAttempt(n.name, &n.snapshot); err != nil {
					break
				}
				if info := a.Info(n.name, a.now); !info.Idle() && !yield(info, nil) {
					return
				}
				last = n.name
			}
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}
