package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A client to which the store does not speak looks for what has become of its
// waiters: in one goroutine, in one statement for all of them, the more seldom the
// longer nothing has changed and the more others come first. In SQLite it first looks,
// on a connection that it keeps while it has waiters, at a number in memory that
// tells whether anything at all has been written.

// sight is what the looker knows of a waiter. The client's mutex guards it.
type sight struct {
	waiting int   // calls of Wait
	version int64 // of the row, when it was looked at last
	before  int   // how many are before it in the queue
	last    driver.Token
	changed time.Time // when something did but signs of life
}

// The pauses between two looks: a part of the time for which nothing has changed,
// within bounds. The bounds are longer where a look costs a round trip.
const (
	pausePart = 8
	maxBefore = 3
)

type bounds struct{ shortest, longest time.Duration }

var pauses = map[Dialect]bounds{
	Postgres: {5 * time.Millisecond, 200 * time.Millisecond},
	MySQL:    {2 * time.Millisecond, 200 * time.Millisecond},
	SQLite:   {500 * time.Microsecond, 5 * time.Millisecond},
}

// lookFor lets the looker look for a waiter.
func (c *client) lookFor(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waiting++
	w.version, w.changed = 0, time.Now() // what came before is new to it
	if !c.looking && c.alive(context.Background()) == nil {
		c.looking = true
		c.working.Go(c.look)
	}
}

func (c *client) lookAway(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waiting--
}

// look looks until nobody waits.
func (c *client) look() {
	sign := c.sign()
	defer sign.end()
	for {
		waiters, pause := c.watched()
		if len(waiters) == 0 {
			return
		}
		c.sleep(pause)
		if c.alive(context.Background()) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		if (sign.changed(ctx) || c.unseen(waiters)) && c.lookOnce(ctx, waiters) != nil {
			sign.missed()
			c.sleep(pauses[c.statements.dialect].longest)
		}
		cancel()
	}
}

// sleep waits for some time, or until the client is closed.
func (c *client) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.closed:
	}
}

// watched returns the waiters to look for, by name, and when to look. If there are
// none the looker has ended.
func (c *client) watched() (map[string][]*waiter, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiters := map[string][]*waiter{}
	b := pauses[c.statements.dialect]
	pause := (1 + maxBefore) * b.longest
	for _, w := range c.waiters {
		if w.waiting == 0 {
			continue
		}
		waiters[w.request.Name] = append(waiters[w.request.Name], w)
		own := min(max(time.Since(w.changed)/pausePart, b.shortest), b.longest)
		pause = min(pause, own*time.Duration(1+min(w.before, maxBefore)))
	}
	c.looking = len(waiters) > 0
	return waiters, pause
}

// lookOnce looks which rows have changed, and reads those.
func (c *client) lookOnce(ctx context.Context, waiters map[string][]*waiter) error {
	_, err := c.request(ctx, func(ctx context.Context, conn *sql.Conn) error {
		versions, err := c.versions(ctx, conn, waiters)
		if err != nil {
			return err
		}
		for name, list := range waiters {
			if !c.stale(list, versions[name]) {
				continue
			}
			s, err := c.read(ctx, conn, name)
			if err != nil {
				return err
			}
			st, err := s.decode(name)
			if err != nil {
				return err
			}
			c.show(list, s, st)
		}
		return nil
	})
	return err
}

// versions returns the version of each waiter's row.
func (c *client) versions(ctx context.Context, conn *sql.Conn, waiters map[string][]*waiter) (map[string]int64, error) {
	var names []string
	for name := range waiters {
		names = append(names, name)
	}
	versions := map[string]int64{}
	for len(names) > 0 {
		n := min(len(names), batchSize)
		q, args := c.statements.list(versionsText, names[:n], nil)
		if err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
			var name string
			var version int64
			err := rows.Scan(&name, &version)
			versions[name] = version
			return err
		}); err != nil {
			return nil, err
		}
		names = names[n:]
	}
	return versions, nil
}

// scan calls f for each row of a statement's result.
func (c *client) scan(ctx context.Context, conn *sql.Conn, q *query, args []any, f func(*sql.Rows) error) error {
	rows, err := conn.QueryContext(c.local(ctx), q.text, q.bind(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// unseen reports whether there are waiters that have not been looked for yet.
func (c *client) unseen(waiters map[string][]*waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range waiters {
		for _, w := range list {
			if w.version == 0 {
				return true
			}
		}
	}
	return false
}

// stale reports whether a row has changed since one of the waiters saw it.
func (c *client) stale(waiters []*waiter, version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range waiters {
		if w.version != version {
			return true
		}
	}
	return false
}

// show tells waiters what has become of them: a hand-off, or a place that is gone.
func (c *client) show(waiters []*waiter, s *snapshot, st *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range waiters {
		if w.version == s.version {
			continue
		}
		w.version = s.version
		if h := st.Held(w.request.Owner); h != nil && claimed(h) {
			w.handOver(h.Token, h.Since, h.Valid)
			continue
		}
		before := w.before
		w.before = -1
		for i := range st.Queue {
			if st.Queue[i].Owner == w.request.Owner {
				w.before = i
			}
		}
		if w.before < 0 {
			w.before = 0
			w.tell(driver.Grant{}) // asking tells
		}
		if w.before != before || w.last != st.last {
			w.last, w.changed = st.last, time.Now()
		}
	}
}
