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

// Where no notifications arrive, one goroutine of the client, the poller, finds out what has
// become of its waiters and watches. One statement asks for the versions of all their rows,
// and changed rows are read. It polls less often the longer nothing changes, and the more
// others are ahead in the queue. In SQLite it first asks the change detector.

// pollState is what the poller knows of a waiter or watch. The client's mutex guards it.
type pollState struct {
	waiting int   // calls of Wait; of a watch 1
	version int64 // of the row at the last poll
	ahead   int   // how many are ahead in the queue
	last    driver.Token
	changed time.Time // when anything but signs of life changed
	polled  time.Time // the last poll, or the client's own step that has seen the row
}

// neverPolled is the version before the first poll.
const neverPolled = -1

// subscribers are the waiters and watches of one name.
type subscribers struct {
	waiters []*waiter
	watches []*watch
}

// states returns what the poller knows of each.
func (s *subscribers) states() (all []*pollState) {
	for _, w := range s.waiters {
		all = append(all, &w.pollState)
	}
	for _, w := range s.watches {
		all = append(all, &w.pollState)
	}
	return all
}

// The pause between two polls is a part of the time for which nothing has changed, within
// bounds, which are longer where a poll costs a round trip.
const (
	pausePart = 8
	maxAhead  = 3
)

type bounds struct{ shortest, longest time.Duration }

var pauses = map[Dialect]bounds{
	Postgres: {5 * time.Millisecond, 200 * time.Millisecond},
	MySQL:    {2 * time.Millisecond, 500 * time.Millisecond},
	SQLite:   {500 * time.Microsecond, 5 * time.Millisecond},
}

// startPollingLocked polls for a waiter or watch from now on.
func (c *client) startPollingLocked(s *pollState) {
	s.waiting++
	if first := s.changed.IsZero(); first || c.statements.dialect == SQLite {
		s.version = neverPolled // the change detector may have told of it already
		if first {
			s.changed = time.Now()
			s.polled = s.changed
			select {
			case c.newcomer <- struct{}{}:
			default: // the poller has been told already
			}
		}
	}
	if !c.polling && c.alive(context.Background()) == nil {
		c.polling = true
		c.working.Go(c.pollLoop)
	}
}

func (c *client) stopPolling(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waiting--
}

// pollLoop polls until there are no waiters and watches left.
func (c *client) pollLoop() {
	detector := c.newChangeDetector()
	defer detector.close()
	for {
		names, pause, newcomers := c.pollTargets()
		switch {
		case len(names) == 0 || c.alive(context.Background()) != nil:
			return
		case pause > 0:
			c.sleep(pause, c.newcomer) // meanwhile a step of this client may have seen the rows
			continue
		}
		ctx, cancel := context.WithTimeout(c.life, requestTimeout)
		failed := (detector.mayHaveChanged(ctx) || newcomers) && c.poll(ctx, detector.conn, names) != nil
		cancel()
		c.notePolled(names)
		if failed {
			detector.close() // it would not tell again of what this poll has missed
			c.sleep(pauses[c.statements.dialect].longest, nil)
		}
	}
}

// sleep waits for some time, or until there is a value in wake, or until the client is closed.
func (c *client) sleep(d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-c.closed:
	}
}

// pollTargets returns the subscribers by name, how long to wait before the next poll, and
// whether there are subscribers that were never polled for. If there are none at all, the
// poller counts as ended.
func (c *client) pollTargets() (names map[string]*subscribers, pause time.Duration, newcomers bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names = map[string]*subscribers{}
	of := func(name string) *subscribers {
		if names[name] == nil {
			names[name] = &subscribers{}
		}
		return names[name]
	}
	for _, w := range c.waiters {
		if w.waiting > 0 {
			s := of(w.request.Name)
			s.waiters = append(s.waiters, w)
		}
	}
	for w := range c.watches {
		s := of(w.name)
		s.watches = append(s.watches, w)
	}
	b, now := pauses[c.statements.dialect], time.Now()
	pause = (1 + maxAhead) * b.longest
	for _, subscribed := range names {
		for _, s := range subscribed.states() {
			own := min(max(now.Sub(s.changed)/pausePart, b.shortest), b.longest)
			pause = min(pause, own*time.Duration(1+min(s.ahead, maxAhead))-now.Sub(s.polled))
			newcomers = newcomers || s.version == neverPolled
		}
	}
	c.polling = len(names) > 0
	return names, pause, newcomers
}

// notePolled notes that all of them were polled for now.
func (c *client) notePolled(names map[string]*subscribers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, subscribed := range names {
		for _, s := range subscribed.states() {
			s.polled = now
		}
	}
}

// poll asks which rows have changed, reads those, and tells their subscribers. It uses the
// detector's connection if there is one.
func (c *client) poll(ctx context.Context, own *sql.Conn, names map[string]*subscribers) error {
	poll := func(ctx context.Context, conn *sql.Conn) error {
		versions, err := c.versions(ctx, conn, slices.Collect(maps.Keys(names)))
		if err != nil {
			return err
		}
		for name, subscribed := range names {
			if !c.stale(subscribed, versions[name]) {
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
			c.update(subscribed, s, st)
		}
		return nil
	}
	if own != nil {
		return poll(ctx, own)
	}
	_, err := c.request(ctx, reading, poll)
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
	rows, err := conn.QueryContext(c.statementContext(ctx), q.text, q.bind(args)...)
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

// stale reports whether a row has changed since one of its subscribers was told of it.
func (c *client) stale(subscribed *subscribers, version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(subscribed.states(), func(s *pollState) bool { return s.version != version })
}

// update tells waiters of a hand-off or a lost place, and watches of other holders.
func (c *client) update(subscribed *subscribers, s *snapshot, st *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range subscribed.watches {
		if w.version = s.version; c.watches[w] && w.update(st) {
			w.changed = time.Now()
		}
	}
	for _, w := range subscribed.waiters {
		if w.version != s.version {
			w.version = s.version
			w.update(st)
		}
	}
}

func (w *waiter) update(st *state) {
	if h := st.Held(w.request.Owner); h != nil && h.Claim {
		w.handOver(st.Grant(h))
		return
	}
	ahead := slices.IndexFunc(st.Queue, func(p record.Place) bool { return p.Owner == w.request.Owner })
	if ahead < 0 {
		ahead = 0
		w.wake(driver.Grant{}) // its next question tells what has become of it
	}
	if ahead != w.ahead || w.last != st.last {
		w.ahead, w.last, w.changed = ahead, st.last, time.Now()
	}
}
