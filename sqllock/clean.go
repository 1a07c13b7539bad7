package sqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// forgetAfter is how long the row of a name outlives its last use. Its token is
// forgotten with it, and the clock goes on from there unless it is set back by
// more (P3).
const forgetAfter = time.Hour

// cleanEvery is how often a client looks at one page of rows, on average: over time
// at all, and with others.
const cleanEvery = time.Minute

// keepClean removes the rows of names that nobody uses, until the client is closed.
func (c *client) keepClean() {
	for last := ""; ; {
		select {
		case <-time.After(cleanEvery/2 + rand.N(cleanEvery)):
		case <-c.closed:
			return
		}
		ctx, cancel := context.WithTimeout(c.life, requestTimeout)
		next, err := c.clean(ctx, last, forgetAfter)
		cancel()
		if err == nil { // else the next time
			last = next
		}
	}
}

// clean removes, of one page of rows after the name last that have not been
// written for some time, those of names that nobody uses: each by its key, if
// nobody has used it meanwhile. It returns where to go on.
func (c *client) clean(ctx context.Context, last string, unused time.Duration) (next string, err error) {
	page, err := c.page(ctx, &c.statements.old, last, micros(unused), pageSize)
	if err != nil {
		return last, err
	}
	for i := range page {
		n := &page[i]
		t, err := c.turn(n.name, &n.snapshot)
		if err != nil || !t.Idle() || len(t.gone) > 0 || len(t.winners) > 0 {
			continue
		}
		if _, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
			return c.alone(ctx, func(bool) error {
				_, err := c.exec(ctx, conn, &c.statements.remove, n.name, n.version)
				return err
			})
		}); err != nil {
			return last, err
		}
	}
	if len(page) < pageSize {
		return "", nil
	}
	return page[len(page)-1].name, nil
}

// Clean looks at all rows now. A driver does it by itself, little by little; it is
// for tests, and for those who cannot wait.
func (c *client) Clean(ctx context.Context) error {
	for last := ""; ; {
		next, err := c.clean(ctx, last, forgetAfter)
		if err != nil || next == "" {
			return err
		}
		last = next
	}
}
