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

// pollState is what the poller knows of a waiter. The client's mutex guards it.
type pollState struct {
	waiting   int       // calls of Wait
	listening bool      // it hears a bell, so it is polled for as a precaution only
	deaf      bool      // the owner before it has no bell: see bells
	ahead     int       // how many are ahead in the queue
	changed   time.Time // when that last changed
	polled    time.Time // the last poll, or the client's own request that has told ahead
}

// moved notes how many are ahead of a waiter.
func (s *pollState) moved(ahead int) {
	s.polled = time.Now()
	if ahead != s.ahead || s.changed.IsZero() {
		s.ahead, s.changed, s.deaf = ahead, s.polled, false
	}
}

// pause returns how long after the last poll the next is due.
func (s *pollState) pause(now time.Time) time.Duration {
	if s.listening {
		return (1 + maxAhead) * longestPause
	}
	quiet := min(max(now.Sub(s.changed)/pausePart, shortestPause), longestPause)
	return quiet * time.Duration(1+min(s.ahead, maxAhead))
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
			c.sleep(pause, c.newcomer) // meanwhile a step of this client may have seen the rows
			continue
		}
		_, err := c.request(c.life, reading, func(ctx context.Context, conn *sql.Conn) error { return c.poll(ctx, conn, waiters) })
		c.mu.Lock()
		for _, w := range waiters {
			w.polled = time.Now()
		}
		c.mu.Unlock()
		if err != nil {
			c.sleep(longestPause, nil)
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
	case <-c.life.Done():
	}
}

// pollTargets returns the waiters, and how long to wait before the next poll. If there are none, the poller counts
// as ended.
func (c *client) pollTargets() (waiters []*waiter, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	pause = (1 + maxAhead) * longestPause
	for _, w := range c.waiters {
		if w.waiting > 0 {
			waiters = append(waiters, w)
			pause = min(pause, w.pause(now)-now.Sub(w.polled))
		}
	}
	c.polling = len(waiters) > 0
	return waiters, pause
}

// poll asks which waiters have their places, and tells the others what has become of them.
func (c *client) poll(ctx context.Context, conn *sql.Conn, waiters []*waiter) error {
	for batch := range slices.Chunk(waiters, batchSize) {
		var all []asked
		var names, owners []string
		for _, w := range batch {
			a := c.asked(w)
			all, names, owners = append(all, a), append(names, a.name), append(owners, a.owner)
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
		for i, w := range batch {
			if n, queued := ahead[[2]string{names[i], owners[i]}]; queued {
				c.mu.Lock()
				w.moved(n)
				c.mu.Unlock()
				continue
			}
			s, err := c.read(ctx, conn, names[i], look{heads: headPlaces, owner: owners[i]})
			if err == nil {
				_, err = c.tell(all[i], s)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// asked is a waiter, as it was when its name was about to be read.
type asked struct {
	*waiter
	name, owner string
	since       driver.Instant // waiter.sent
}

// asked returns a waiter as it is. It may ask again meanwhile.
func (c *client) asked(w *waiter) asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return asked{w, w.request.Name, w.request.Owner, w.sent}
}

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
		w.handOver(g)
	} else if queued = st.Queued(w.owner) != nil; !queued {
		w.wake(driver.Grant{}) // its next question tells what has become of it
	}
	return queued, nil
}
