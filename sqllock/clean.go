package sqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"time"
)

// forgetAfter is how long the row of a name outlives its last use. Its token is
// forgotten with it, and the clock goes on from there unless it is set back by
// more (P3).
const forgetAfter = time.Hour

// cleanEvery is how often a client looks for rows to remove, on average. While there are
// many it goes on at once: see pauseAfter.
const cleanEvery = time.Minute

// removeSize is how many rows one statement removes: few, because it locks them all.
const removeSize = 64

// cleanLoop removes the rows of names that nobody uses, until the client is closed.
func (c *client) cleanLoop() {
	pause := pauseAfter(cleaned{}, 0)
	for last := ""; ; {
		select {
		case <-time.After(pause):
		case <-c.closed:
			return
		}
		ctx, cancel := context.WithTimeout(c.life, requestTimeout)
		start := time.Now()
		done, err := c.clean(ctx, last, forgetAfter)
		cancel()
		if err == nil { // else the next time
			last = done.next
		}
		pause = pauseAfter(done, time.Since(start))
	}
}

// cleaned says what was done with one page.
type cleaned struct {
	next          string // where to go on; "": there is no further page
	idle, removed int
}

// pauseAfter returns how long to wait before the next page. In a store with many names to
// remove the next page is cleaned soon, and takes a fifth of the client's time. If there is no further page, or
// another client was quicker to remove most rows of this one, the client pauses for long.
func pauseAfter(page cleaned, took time.Duration) time.Duration {
	if page.next == "" || page.removed < page.idle/2 {
		return cleanEvery/2 + rand.N(cleanEvery)
	}
	return 4 * took
}

// clean reads one page of rows, after the name last, that have not been written for some
// time. It removes those of names that nobody uses, unless somebody writes them meanwhile.
func (c *client) clean(ctx context.Context, last string, unused time.Duration) (cleaned, error) {
	page, err := c.page(ctx, &c.statements.old, last, micros(unused), pageSize)
	if err != nil {
		return cleaned{}, err
	}
	var done cleaned
	var plain []string
	for i := range page {
		n := &page[i]
		a, err := c.newAttempt(n.name, &n.snapshot)
		if err != nil || !a.Idle() || len(a.tombstones) > 0 || len(a.winners) > 0 {
			continue
		}
		done.idle++
		if n.extra == "" && n.crowd == 0 {
			plain = append(plain, n.name)
			continue
		}
		removed, err := c.remove(ctx, &c.statements.remove, n.name, n.version)
		if err != nil {
			return done, err
		}
		done.removed += removed
	}
	for some := range slices.Chunk(plain, removeSize) {
		q, args := c.statements.list(removeListText, some, nil)
		removed, err := c.remove(ctx, &q, args...)
		if err != nil {
			return done, err
		}
		done.removed += removed
	}
	if last == "" {
		if err := c.removeForlorn(ctx); err != nil {
			return done, err
		}
	}
	if len(page) == pageSize {
		done.next = page[len(page)-1].name
	}
	return done, nil
}

// removeForlorn removes places that ended long ago, at names that nobody has used since.
func (c *client) removeForlorn(ctx context.Context) error {
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		var pairs [][2]string
		if err := c.scan(ctx, conn, &c.statements.forlorn, []any{removeSize}, func(rows *sql.Rows) error {
			var pair [2]string
			err := rows.Scan(&pair[0], &pair[1])
			pairs = append(pairs, pair)
			return err
		}); err != nil {
			return err
		}
		for _, p := range pairs { // one by one: see removeOver
			if err := c.removeOver(ctx, conn, p[0], p[1]); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// remove runs a statement that removes rows, and returns how many it has removed.
func (c *client) remove(ctx context.Context, q *query, args ...any) (int, error) {
	var n int64
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		return c.withWriterLock(ctx, func(bool) (err error) { n, err = c.exec(ctx, conn, q, args...); return err })
	})
	return int(n), err
}

// Clean removes all unused rows now. A driver does it by itself, little by little; this is
// for tests, and for callers who cannot wait.
func (c *client) Clean(ctx context.Context) error {
	for last := ""; ; {
		page, err := c.clean(ctx, last, forgetAfter)
		if err != nil || page.next == "" {
			return err
		}
		last = page.next
	}
}
