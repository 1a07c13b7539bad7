package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Where no notifications arrive, one goroutine of the client, the poller, finds out what has become of its waiters.
// One statement asks which of them still have their places, and how many are ahead of each: a place that is gone
// has been granted, as a rule. The poller asks less often the longer nothing changes, and for those who are not
// first.

const (
	// The pause between two polls is a part of the time for which nothing has changed, within bounds, and up to
	// four times as long for those that are not first.
	pausePart     = 8
	maxAhead      = 3
	shortestPause = 2 * time.Millisecond
	longestPause  = 250 * time.Millisecond
)

// moved notes how many are ahead of a waiter.
func (w *waiter) moved(ahead int) {
	w.polled = time.Now()
	if ahead != w.ahead || w.changed.IsZero() {
		w.ahead, w.changed, w.deaf = ahead, w.polled, false
	}
}

// startPollingLocked has the poller ask for a waiter.
func (c *client) startPollingLocked(w *waiter) {
	w.waiting++
	select {
	case c.newcomer <- struct{}{}:
	default: // the poller has been told already
	}
	if !c.polling && c.life.Err() == nil {
		c.polling = true
		c.working.Go(c.pollLoop)
	}
}

func (c *client) stopPolling(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.waiting--
}

// pollLoop polls until there are no waiters left.
func (c *client) pollLoop() {
	for {
		waiters, pause := c.pollTargets()
		c.bells.listen()
		switch {
		case len(waiters) == 0 || c.life.Err() != nil:
			return
		case pause > 0:
			select {
			case <-time.After(pause): // a step of this client may have seen the rows in the meantime
			case <-c.newcomer:
			case <-c.life.Done():
			}
		default: // what fails is done the next time
			_, _ = c.request(c.life, usual, func(ctx context.Context, conn *sql.Conn) error { return c.poll(ctx, conn, waiters) })
		}
	}
}

// pollTargets returns the waiters, and how long to wait before the next poll. If there are none, the poller counts
// as ended. The ear's waiter is polled for as a precaution only.
func (c *client) pollTargets() (waiters []asked, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	pause = (1 + maxAhead) * longestPause
	for _, w := range c.waiters {
		if w.waiting == 0 {
			continue
		}
		each := (1 + maxAhead) * longestPause
		if w != c.bells.ear {
			quiet := min(max(now.Sub(w.changed)/pausePart, shortestPause), longestPause)
			each = quiet * time.Duration(1+min(w.ahead, maxAhead))
		}
		waiters = append(waiters, w.asked())
		pause = min(pause, each-now.Sub(w.polled))
	}
	for i := range waiters {
		if pause <= 0 {
			waiters[i].polled = now
		}
	}
	c.polling = len(waiters) > 0
	return waiters, pause
}

// poll asks which waiters have their places, and tells the others what has become of them.
func (c *client) poll(ctx context.Context, conn *sql.Conn, waiters []asked) error {
	for batch := range slices.Chunk(waiters, batchSize) {
		var names, owners []string
		for _, w := range batch {
			names, owners = append(names, w.name), append(owners, w.owner)
		}
		ahead := map[[2]string]int{}
		if err := c.scan(ctx, conn, c.statements.list(queuedText, names, owners), func(scan func(...any) error) error {
			var key [2]string
			var n int
			err := scan(&key[0], &key[1], &n)
			ahead[key] = n
			return err
		}); err != nil {
			return err
		}
		for _, w := range batch {
			if n, queued := ahead[[2]string{w.name, w.owner}]; queued {
				c.mu.Lock()
				w.moved(n)
				c.mu.Unlock()
				continue
			}
			s, err := c.read(ctx, conn, w.name, look{heads: headPlaces, owner: w.owner})
			if err == nil {
				_, err = c.tell(w, s)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// asked is a waiter as it was before its name was read. It may ask again in the meantime.
type asked struct {
	*waiter
	name, owner string
	since       driver.Instant // waiter.sent
}

func (w *waiter) asked() asked { return asked{w, w.request.Name, w.request.Owner, w.sent} }

// tell tells a waiter what a snapshot says of it, and reports whether it still has its place.
func (c *client) tell(w asked, s *snapshot) (queued bool, err error) {
	st, err := s.decode(w.name)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := st.Held(w.owner); h != nil && w.placed {
		g := st.Grant(h)
		if !h.Claim {
			// The columns do not tell what a claim counts from, nor that it is one. When the last request that was
			// answered before the read was answered, this hold was not granted yet (P1).
			g.Since, g.Valid, g.Claim = w.since, h.Expires.Sub(h.Taken), true
		}
		w.wake(g)
	} else if queued = st.Queued(w.owner) != nil; !queued {
		w.wake(driver.Grant{}) // its next question tells what has become of it
	}
	return queued, nil
}
