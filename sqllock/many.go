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
			n, err := c.execList(ctx, conn, renewText, grants, now)
			if err != nil || n == int64(len(now)) {
				return err
			}
			plain, err := c.plain(ctx, conn, grants, now, true)
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
// that must be released in another way.
func (c *client) releaseMany(ctx context.Context, grants []driver.Grant, which []int, errs []error) (rest []int) {
	for batch := range slices.Chunk(which, batchSize) {
		left, unsure, err := c.releaseBatch(ctx, grants, batch)
		rest = append(rest, left...)
		for _, i := range unsure {
			if err == nil {
				errs[i] = c.release(ctx, &grants[i])
			} else {
				errs[i] = err
			}
			if errs[i] == driver.ErrNotHeld {
				errs[i] = nil // it was released a moment ago
			}
		}
	}
	return rest
}

// releaseBatch releases some grants. It returns those that are no plain holds, which it has
// not tried to release, and those for which it does not know whether it has.
func (c *client) releaseBatch(ctx context.Context, grants []driver.Grant, which []int) (rest, unsure []int, err error) {
	for _, i := range which {
		c.forget(grants[i].Owner)
	}
	_, err = c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error {
		rest, unsure = nil, which
		plain, err := c.plain(ctx, conn, grants, which, false)
		if err != nil {
			return err
		}
		unsure = nil
		for _, i := range which {
			if plain[grants[i].Owner] == grants[i].Name {
				unsure = append(unsure, i)
			} else {
				rest = append(rest, i)
			}
		}
		if len(unsure) == 0 {
			return nil
		}
		n, err := c.execList(ctx, conn, endText, grants, unsure)
		if err == nil && n == int64(len(unsure)) {
			unsure = nil
		}
		return err
	})
	return rest, unsure, err
}

func (c *client) execList(ctx context.Context, conn *sql.Conn, text string, grants []driver.Grant, which []int) (int64, error) {
	q, args := c.statements.list(text, namesOf(grants, which), ownersOf(grants, which))
	var n int64
	err := c.withWriterLock(ctx, func(bool) (err error) { n, err = c.exec(ctx, conn, &q, args...); return err })
	return n, err
}

// plain returns the names, by owner, of the grants that are plain exclusive holds; with waited,
// also those for which others wait.
func (c *client) plain(
	ctx context.Context, conn *sql.Conn, grants []driver.Grant, which []int, waited bool,
) (map[string]string, error) {
	q, args := c.statements.list(plainText, namesOf(grants, which), ownersOf(grants, which))
	plain := map[string]string{}
	err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
		var name, owner string
		var crowd int64
		err := rows.Scan(&name, &owner, &crowd)
		if crowd == 0 || waited {
			plain[owner] = name
		}
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
