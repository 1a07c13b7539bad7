package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	var info driver.Info
	_, err := c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
		return c.peekOrStep(ctx, conn, name, look{heads: allPlaces}, func(a *change) { info = a.Info(name, a.now) })
	})
	return info, err
}

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	return c.stepAlone(ctx, usual, name, func(a *change) error {
		h, ok := a.Record.Break(token)
		if !ok {
			return driver.ErrNotHeld
		}
		a.broken = &h
		a.putTombstone(tombstone{Owner: h.Owner, Broken: true, Until: h.Expires})
		a.settle(a.now, &a.rules)
		return nil
	})
}

// pageSize is how many names are read at a time.
const pageSize = 500

// List implements driver.Operator. It shows names in the order of their bytes.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for last, more := "", true; more; {
			names, page, err := c.page(ctx, last, prefix)
			more = len(names) == pageSize
			for i, name := range names {
				a, broken := c.newChange(name, page[i])
				if last, err = name, errors.Join(err, broken); err != nil {
					break
				}
				if info := a.Info(name, a.now); !info.Idle() && !yield(info, nil) {
					return
				}
			}
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
		}
	}
}

// page reads the names in use that begin with prefix, after the name last, with all their places.
func (c *client) page(ctx context.Context, last, prefix string) (names []string, page []*snapshot, err error) {
	// No name that begins with the prefix is higher, in the order of bytes.
	end := prefix + strings.Repeat("\U0010FFFF", driver.MaxName/4)
	_, err = c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
		names, page = nil, nil
		return c.scan(ctx, conn, c.statements.bound(usedText, last, prefix, end, pageSize), func(scan func(...any) error) error {
			var name string
			var p placeRow
			s := &snapshot{heads: allPlaces}
			err := scan(slices.Concat([]any{&name}, s.clock(), s.fields(), p.fields())...)
			if n := len(names); n == 0 || names[n-1] != name {
				names, page = append(names, name), append(page, s)
			}
			if s = page[len(page)-1]; p.Ticket != 0 {
				s.places = append(s.places, p)
			}
			return err
		})
	})
	return names, page, err
}

var _ interface {
	driver.Queuer
	driver.Operator
	driver.Downgrader
	driver.Notifier
} = (*client)(nil)
