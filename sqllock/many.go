package sqllock

import (
	"context"
	"database/sql"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// batchSize is how many holds one statement renews or releases.
const batchSize = 256

// renewMany renews those of the grants that are plain exclusive holds,
// batchSize at a time, and sets the errors of batches that failed. It returns the grants
// that must be renewed in another way.
func (c *client) renewMany(ctx context.Context, grants []driver.Grant, which []int, errs []error) (rest []int) {
	for len(which) > 0 {
		n := min(len(which), batchSize)
		left, err := c.renewBatch(ctx, grants, which[:n])
		if err != nil {
			for _, i := range which[:n] {
				errs[i] = err
			}
			left = nil
		}
		rest = append(rest, left...)
		which = which[n:]
	}
	return rest
}

// renewBatch renews some grants. The number of rows tells whether it has renewed all of
// them. If not, it reads which are still plain holds, and repeats the statement for those.
func (c *client) renewBatch(ctx context.Context, grants []driver.Grant, which []int) (rest []int, err error) {
	_, err = c.request(ctx, renewing, func(ctx context.Context, conn *sql.Conn) error {
		rest = nil
		now := which
		for range 3 {
			n, err := c.renewList(ctx, conn, grants, now)
			if err != nil || n == int64(len(now)) {
				return err
			}
			plain, err := c.plain(ctx, conn, grants, now)
			if err != nil {
				return err
			}
			var next []int
			for _, i := range now {
				if plain[grants[i].Owner] == grants[i].Name {
					next = append(next, i)
				} else {
					rest = append(rest, i)
				}
			}
			if now = next; len(now) == 0 {
				return nil
			}
		}
		rest = append(rest, now...)
		return nil
	})
	return rest, err
}

// releaseMany releases those of the grants that are exclusive holds for which nobody waits,
// batchSize at a time, and sets the errors of batches that failed. It returns the grants
// that must be released in another way, lost ones among them.
func (c *client) releaseMany(ctx context.Context, grants []driver.Grant, which []int, errs []error) (rest []int) {
	for batch := range slices.Chunk(which, batchSize) {
		ended := map[string]bool{}
		for _, i := range batch {
			c.forget(grants[i].Owner)
		}
		_, err := c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error {
			clear(ended)
			return c.endList(ctx, conn, grants, batch, ended)
		})
		for _, i := range batch {
			if err != nil {
				errs[i] = err
			} else if !ended[grants[i].Name] {
				rest = append(rest, i)
			}
		}
	}
	return rest
}

// endList ends those of some grants that are plain exclusive holds for which nobody waits, and notes their
// names. An UPDATE of MySQL does not tell which rows it has changed, so they are read and locked before.
func (c *client) endList(ctx context.Context, conn *sql.Conn, grants []driver.Grant, which []int, ended map[string]bool) error {
	names, owners := namesOf(grants, which), ownersOf(grants, which)
	each := func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		ended[name] = true
		return err
	}
	if c.statements.dialect != MySQL {
		q, args := c.statements.list(endText+" RETURNING name", names, owners)
		return c.withWriterLock(ctx, func(bool) error {
			clear(ended)
			return c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error { return each(rows.Scan) })
		})
	}
	locked, args := c.statements.list(plainText+" AND crowd = 0 FOR UPDATE", names, owners)
	end, _ := c.statements.list(endText, names, owners)
	read := locked.bound(args...)
	read.Each = func(scan func(...any) error) error {
		return each(func(into ...any) error { return scan(into[0], new(string)) })
	}
	err := c.together(ctx, conn, slices.Concat(bound(c.statements.begin[:2]), []Statement{read, end.bound(args...)}, bound(c.statements.commit)))
	if err != nil {
		c.discard(conn) // with what it has not committed
	}
	return err
}

func (c *client) renewList(ctx context.Context, conn *sql.Conn, grants []driver.Grant, which []int) (int64, error) {
	q, args := c.statements.list(renewText, namesOf(grants, which), ownersOf(grants, which))
	var n int64
	err := c.withWriterLock(ctx, func(bool) (err error) { n, err = c.exec(ctx, conn, &q, args...); return err })
	return n, err
}

// plain returns the names, by owner, of the grants that are plain exclusive holds.
func (c *client) plain(ctx context.Context, conn *sql.Conn, grants []driver.Grant, which []int) (map[string]string, error) {
	q, args := c.statements.list(plainText, namesOf(grants, which), ownersOf(grants, which))
	plain := map[string]string{}
	err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
		var name, owner string
		err := rows.Scan(&name, &owner)
		plain[owner] = name
		return err
	})
	return plain, err
}

func namesOf(grants []driver.Grant, which []int) (names []string) {
	for _, i := range which {
		names = append(names, grants[i].Name)
	}
	return names
}

func ownersOf(grants []driver.Grant, which []int) (owners []string) {
	for _, i := range which {
		owners = append(owners, grants[i].Owner)
	}
	return owners
}
