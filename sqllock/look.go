package sqllock

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// A client to which the store does not speak looks for what has become of its
// waiters: in one goroutine, in one statement for all of them, the more seldom the
// longer nothing has changed and the more others come first. In SQLite it first looks,
// on a connection that it keeps while it has waiters, at a number in memory that
// tells whether anything at all has been written.

// sight is what the looker knows of a waiter or watch. The client's mutex guards it.
type sight struct {
	waiting int   // calls of Wait; of a watch 1
	version int64 // of the row, when it was looked at last
	before  int   // how many are before it in the queue
	last    driver.Token
	changed time.Time // when something did but signs of life
	looked  time.Time // when it was looked at last, or the client's own step saw it
}

// unseen is the version of what has not been looked at.
const unseen = -1

// audience are those who want to know of one name.
type audience struct {
	waiters []*waiter
	watches []*watch
}

// sights returns what the looker knows of them.
func (a *audience) sights() (all []*sight) {
	for _, w := range a.waiters {
		all = append(all, &w.sight)
	}
	for _, w := range a.watches {
		all = append(all, &w.sight)
	}
	return all
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
	MySQL:    {2 * time.Millisecond, 500 * time.Millisecond},
	SQLite:   {500 * time.Microsecond, 5 * time.Millisecond},
}

// lookFor lets the looker look for a waiter or watch. The client's mutex is held.
func (c *client) lookFor(s *sight) {
	s.waiting++
	if first := s.changed.IsZero(); first || c.statements.dialect == SQLite {
		s.version = unseen // the sign may have told of what it has not seen
		if first {
			s.changed = time.Now()
			s.looked = s.changed
			select {
			case c.fresh <- struct{}{}:
			default: // it has been told already
			}
		}
	}
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

// look looks until nobody wants to know.
func (c *client) look() {
	sign := c.sign()
	defer sign.end()
	for {
		names, pause, fresh := c.audiences()
		switch {
		case len(names) == 0 || c.alive(context.Background()) != nil:
			return
		case pause > 0:
			c.sleep(pause, c.fresh) // then somebody may have seen it, or another wants to know
			continue
		}
		ctx, cancel := context.WithTimeout(c.life, requestTimeout)
		missed := (sign.changed(ctx) || fresh) && c.lookOnce(ctx, sign.conn, names) != nil
		cancel()
		c.looked(names)
		if missed {
			sign.end() // it has told already of what was not seen
			c.sleep(pauses[c.statements.dialect].longest, nil)
		}
	}
}

// sleep waits for some time, or until there is a wake, or until the client is closed.
func (c *client) sleep(d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-c.closed:
	}
}

// audiences returns who wants to know, by name, for how long not to look yet, and
// whether some have not been looked for at all. If there are none the looker has ended.
func (c *client) audiences() (names map[string]*audience, pause time.Duration, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names = map[string]*audience{}
	of := func(name string) *audience {
		if names[name] == nil {
			names[name] = &audience{}
		}
		return names[name]
	}
	for _, w := range c.waiters {
		if w.waiting > 0 {
			a := of(w.request.Name)
			a.waiters = append(a.waiters, w)
		}
	}
	for w := range c.watches {
		a := of(w.name)
		a.watches = append(a.watches, w)
	}
	b, now := pauses[c.statements.dialect], time.Now()
	pause = (1 + maxBefore) * b.longest
	for _, a := range names {
		for _, s := range a.sights() {
			own := min(max(now.Sub(s.changed)/pausePart, b.shortest), b.longest)
			pause = min(pause, own*time.Duration(1+min(s.before, maxBefore))-now.Sub(s.looked))
			fresh = fresh || s.version == unseen
		}
	}
	c.looking = len(names) > 0
	return names, pause, fresh
}

// looked says that now was the time at which all of them were looked for.
func (c *client) looked(names map[string]*audience) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, a := range names {
		for _, s := range a.sights() {
			s.looked = now
		}
	}
}

// lookOnce looks which rows have changed, and reads those, on a connection that the
// looker has, or on any.
func (c *client) lookOnce(ctx context.Context, own *sql.Conn, names map[string]*audience) error {
	look := func(ctx context.Context, conn *sql.Conn) error {
		versions, err := c.versions(ctx, conn, slices.Collect(maps.Keys(names)))
		if err != nil {
			return err
		}
		for name, a := range names {
			if !c.stale(a, versions[name]) {
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
			c.show(a, s, st)
		}
		return nil
	}
	if own != nil {
		return look(ctx, own)
	}
	_, err := c.request(ctx, reading, look)
	return err
}

// versions returns the version of each name's row.
func (c *client) versions(ctx context.Context, conn *sql.Conn, names []string) (map[string]int64, error) {
	versions := map[string]int64{}
	for batch := range slices.Chunk(names, batchSize) {
		q, args := c.statements.list(versionsText, batch, nil)
		if err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
			var name string
			var version int64
			err := rows.Scan(&name, &version)
			versions[name] = version
			return err
		}); err != nil {
			return nil, err
		}
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

// stale reports whether a row has changed since one of them saw it.
func (c *client) stale(a *audience, version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(a.sights(), func(s *sight) bool { return s.version != version })
}

// show tells waiters what has become of them (a hand-off, or a place that is gone),
// and watches who holds.
func (c *client) show(a *audience, s *snapshot, st *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range a.watches {
		if w.version = s.version; c.watches[w] && w.show(st) {
			w.changed = time.Now()
		}
	}
	for _, w := range a.waiters {
		if w.version != s.version {
			w.version = s.version
			w.show(st)
		}
	}
}

func (w *waiter) show(st *state) {
	if h := st.Held(w.request.Owner); h != nil && h.Claim {
		w.handOver(st.Grant(h))
		return
	}
	before := slices.IndexFunc(st.Queue, func(p record.Place) bool { return p.Owner == w.request.Owner })
	if before < 0 {
		before = 0
		w.tell(driver.Grant{}) // asking tells
	}
	if before != w.before || w.last != st.last {
		w.before, w.last, w.changed = before, st.last, time.Now()
	}
}
