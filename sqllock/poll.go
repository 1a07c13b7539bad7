package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Where no notifications arrive, one goroutine of the client, the poller, finds out what has
// become of its waiters and watches. One statement asks which of its waiters still have their
// places, and how many are ahead of each: a place that is gone has been granted, as a rule. Another
// asks for the versions of the rows that are watched. It polls less often the longer nothing
// changes, and the later a waiter's turn is to come: see pollState.pause. In SQLite it first asks
// the change detector.

// pollState is what the poller knows of a waiter or watch. The client's mutex guards it.
type pollState struct {
	started bool          // the poller knows of it
	waiting int           // calls of Wait; of a watch 1
	version int64         // of the row of a watch at the last poll; neverPolled before the first
	ahead   int           // how many are ahead in the queue
	changed time.Time     // when ahead or the row last changed
	pace    time.Duration // how long each that was ahead took of late
	polled  time.Time     // the last poll, or the client's own request that has told ahead
}

// moved notes how many are ahead of a waiter.
func (s *pollState) moved(ahead int) {
	s.polled = time.Now()
	if ahead != s.ahead || s.changed.IsZero() {
		if ahead < s.ahead {
			s.pace = s.polled.Sub(s.changed) / time.Duration(s.ahead-ahead)
		}
		s.ahead, s.changed = ahead, s.polled
	}
}

// pause returns how long after the last poll the next is due: a part of the time for which nothing
// has changed, up to four times as long for those that are not first, and at least b.place for each
// that is ahead: a waiter's pauses get shorter as its turn comes near. In SQLite a slow queue is polled less often: after at
// most a quarter of the time that it takes until the waiter's turn.
func (s *pollState) pause(b bounds, now time.Time) time.Duration {
	quiet := min(max(now.Sub(s.changed)/pausePart, b.shortest), b.longest)
	place := b.place
	if b.pacePart > 0 {
		place = max(place, s.pace/b.pacePart)
	}
	return max(quiet*time.Duration(1+min(s.ahead, maxAhead)), min(b.shortest+place*time.Duration(s.ahead), b.farthest))
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
// bounds, which are longer where a poll costs a round trip. It is at least place for each that is
// ahead, but need not be longer than farthest.
const (
	pausePart = 8
	maxAhead  = 3
)

type bounds struct {
	shortest, longest, place, farthest time.Duration

	pacePart time.Duration // place is at least this part of pollState.pace; 0: it does not depend on that
}

var pauses = map[Dialect]bounds{
	Postgres: {5 * time.Millisecond, 200 * time.Millisecond, 5 * time.Millisecond, 200 * time.Millisecond, 0},
	MySQL:    {time.Millisecond, 500 * time.Millisecond, 2 * time.Millisecond, 500 * time.Millisecond, 0},
	// Here the processes of one host share its processors, and each of a crowd may be one.
	SQLite: {500 * time.Microsecond, 5 * time.Millisecond, time.Millisecond, 200 * time.Millisecond, 4},
}

// startPollingLocked polls for a waiter or watch from now on.
func (c *client) startPollingLocked(s *pollState) {
	s.waiting++
	if !s.started || c.statements.dialect == SQLite {
		s.version = neverPolled // the change detector may have told of it already
	}
	if !s.started && s.changed.IsZero() {
		s.changed = time.Now()
		s.polled = s.changed
	}
	s.started = true
	// Also one that has waited before: suppose that it asked for its place again when the poller chose
	// its pause for the others, which are far behind.
	if s.waiting == 1 {
		select {
		case c.newcomer <- struct{}{}:
		default: // the poller has been told already
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
			pause = min(pause, s.pause(b, now)-now.Sub(s.polled))
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

// poll asks what has changed, and tells the subscribers. It uses the detector's connection if there
// is one.
func (c *client) poll(ctx context.Context, own *sql.Conn, names map[string]*subscribers) error {
	poll := func(ctx context.Context, conn *sql.Conn) error {
		var waiters []*waiter
		var watched []string
		for name, subscribed := range names {
			waiters = append(waiters, subscribed.waiters...)
			if len(subscribed.watches) > 0 {
				watched = append(watched, name)
			}
		}
		return errors.Join(c.pollWaiters(ctx, conn, waiters), c.pollWatches(ctx, conn, watched, names))
	}
	if own != nil {
		return poll(ctx, own)
	}
	_, err := c.request(ctx, reading, poll)
	return err
}

// pollWaiters asks which waiters have their places, and tells the others what has become of them.
func (c *client) pollWaiters(ctx context.Context, conn *sql.Conn, waiters []*waiter) error {
	for batch := range slices.Chunk(waiters, batchSize) {
		var names, owners []string
		c.mu.Lock() // a waiter that asks again has another request
		for _, w := range batch {
			names, owners = append(names, w.request.Name), append(owners, w.request.Owner)
		}
		c.mu.Unlock()
		ahead := map[[2]string]int{}
		q, args := c.statements.list(queuedText, names, owners)
		if err := c.scan(ctx, conn, &q, args, func(rows *sql.Rows) error {
			var key [2]string
			var n int
			err := rows.Scan(&key[0], &key[1], &n)
			ahead[key] = n
			return err
		}); err != nil {
			return err
		}
		for i, w := range batch {
			if n, queued := ahead[[2]string{names[i], owners[i]}]; queued {
				c.mu.Lock()
				w.version = 0
				w.moved(n)
				c.mu.Unlock()
			} else if err := c.tell(ctx, conn, w, names[i], owners[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell tells a waiter that has no place any more whether it was granted the name.
func (c *client) tell(ctx context.Context, conn *sql.Conn, w *waiter, name, owner string) error {
	s, err := c.read(ctx, conn, name, look{heads: headPlaces, owner: owner})
	if err != nil {
		return err
	}
	at := time.Now()
	st, err := s.decode(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.version = 0
	if h := st.Held(owner); h != nil && h.Claim {
		c.contention.noteSeen(owner, s, at)
		w.handOver(st.Grant(h))
	} else if st.Queued(owner) == nil {
		w.wake(driver.Grant{}) // its next question tells what has become of it
	}
	return nil
}

// pollWatches asks which of the rows that are watched have changed, and reads those.
func (c *client) pollWatches(ctx context.Context, conn *sql.Conn, watched []string, names map[string]*subscribers) error {
	versions, err := c.versions(ctx, conn, watched)
	if err != nil {
		return err
	}
	for _, name := range watched {
		watches := names[name].watches
		if !c.stale(watches, versions[name]) {
			continue
		}
		s, err := c.read(ctx, conn, name, look{heads: 1})
		if err != nil {
			return err
		}
		st, err := s.decode(name)
		if err != nil {
			return err
		}
		c.update(watches, s, st)
	}
	return nil
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
	text, args := q.bind(args)
	rows, err := conn.QueryContext(c.statementContext(ctx), text, args...)
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

// stale reports whether a row has changed since one of its watches was told of it.
func (c *client) stale(watches []*watch, version int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(watches, func(w *watch) bool { return w.version != version })
}

// update tells watches of other holders.
func (c *client) update(watches []*watch, s *snapshot, st *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range watches {
		if w.version = s.version; c.watches[w] && w.update(st) {
			w.changed = time.Now()
		}
	}
}
