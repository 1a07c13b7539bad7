package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
)

const (
	// forgetAfter is how long the row of a name outlives its last use. Its token is forgotten with it, and the
	// clock goes on from there unless it is set back by more (P3).
	forgetAfter = time.Hour
	// cleanEvery is how often a client looks for rows to remove, on average.
	cleanEvery = time.Minute
	// removeSize is how many rows one statement removes: few, because it locks them all.
	removeSize = 64
)

// cleanLoop removes the rows of names that nobody uses, until the client is closed.
func (c *client) cleanLoop() {
	for pause.Sleep(c.life, pause.Jitter(cleanEvery*4/3)) {
		_ = c.Clean(c.life) // what fails is done the next time
	}
}

// Clean removes all unused rows now. A driver does it by itself every minute; this is for tests, and for callers who cannot
// wait. It reads the names of rows that have not been written for an hour, page by page, and removes those that nobody
// uses, unless somebody writes them meanwhile (P9).
func (c *client) Clean(ctx context.Context) error {
	for last, more := "", true; more; {
		var plain, other []string
		if _, err := c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
			plain, other = nil, nil
			err := c.scan(ctx, conn, c.statements.bound(oldText, last, pageSize), func(scan func(...any) error) error {
				name, list, isPlain := "", &other, false
				err := scan(&name, &isPlain)
				if isPlain {
					list = &plain
				}
				*list = append(*list, name)
				return err
			})
			for some := range slices.Chunk(plain, removeSize) {
				if err == nil {
					_, err = c.exec(ctx, conn, c.statements.list(removeListText, some, nil))
				}
			}
			return err
		}); err != nil {
			return err
		}
		more = len(plain)+len(other) == pageSize
		last = slices.Max(slices.Concat([]string{last}, plain, other))
		for _, name := range other { // what has ended there is written down, and the row removed an hour later
			if _, err := c.Inspect(ctx, name); err != nil {
				return err
			}
		}
	}
	_, err := c.request(ctx, usual, c.removeEnded)
	return err
}

// removeEnded removes places that have ended, unless somebody confirms them meanwhile: clients may die behind a live one
// for as long as a name is held (P9). Each is removed by its key: statements that remove several lock rows in orders that
// differ.
func (c *client) removeEnded(ctx context.Context, conn *sql.Conn) error {
	var places [][2]string
	if err := c.scan(ctx, conn, c.statements.bound(endedText, pageSize), func(scan func(...any) error) error {
		var p [2]string
		err := scan(&p[0], &p[1])
		places = append(places, p)
		return err
	}); err != nil {
		return err
	}
	for _, p := range places {
		if _, err := c.exec(ctx, conn, c.statements.bound(removeEndedText, p[0], p[1])); err != nil {
			return err
		}
	}
	return nil
}
