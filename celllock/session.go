package celllock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// class is what the holds of one session have in common.
type class struct {
	seconds   int64 // of the TTL
	lockDelay time.Duration
}

func classOf(r *driver.Request) class {
	return class{int64((r.TTL + time.Second - 1) / time.Second), r.LockDelay}
}

// session is the session of a class. It is opened by the first request that needs it.
type session struct {
	client *client
	class  class
	ready  chan struct{} // closed when it is open, or could not be opened
	of     *cell.Session
	err    error
	over   bool // guarded by the client's mutex
}

// sessionFor returns the session for a request, opened if it is not.
func (c *client) sessionFor(ctx context.Context, r *driver.Request) (*session, error) {
	for {
		k := classOf(r)
		c.mu.Lock()
		if c.isClosed {
			c.mu.Unlock()
			return nil, driver.ErrClosed
		}
		s := c.sessions[k]
		if s == nil || s.over {
			s = &session{client: c, class: k, ready: make(chan struct{})}
			c.sessions[k] = s
			c.working.Go(s.open)
		}
		c.mu.Unlock()
		if _, err := s.opened(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		over := s.over
		c.mu.Unlock()
		if !over {
			return s, nil
		}
	}
}

// opened waits until the session is open.
func (s *session) opened(ctx context.Context) (*cell.Session, error) {
	select {
	case <-s.ready:
		return s.of, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open opens the session. If that fails the next request tries again.
func (s *session) open() {
	ctx, cancel := s.client.bounded(s.client.life)
	defer cancel()
	s.of, s.err = s.client.cell.Open(ctx, cell.SessionOptions{
		TTL: time.Duration(s.class.seconds) * time.Second, LockDelay: s.class.lockDelay,
		Note: s.client.options.Note, Observer: s,
	})
	if s.err != nil {
		s.client.mu.Lock()
		s.over = true
		s.client.mu.Unlock()
	}
	close(s.ready)
}

// end notes that the session has ended: its holds are lost, and its places worth nothing.
func (s *session) end(why error) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	loss := driver.Loss{Err: fmt.Errorf("%w: %w", driver.ErrNotHeld, why)}
	for _, r := range c.records {
		if r.session == s {
			if r.state == held {
				loss.Owners = append(loss.Owners, r.owner)
			}
			c.forgetLocked(r)
		}
	}
	c.tellLocked(loss)
}

// Over implements cell.Observer.
func (s *session) Over(why error) { s.end(why) }

// Event implements cell.Observer.
func (s *session) Event(e *cellv1.Event) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := e.Event.(type) {
	case *cellv1.Event_Granted:
		if r := c.records[key{e.Granted.Name, e.Granted.Request}]; r != nil && r.session == s {
			c.takeLocked(r, e.Granted)
		}
	case *cellv1.Event_Lost:
		if r := c.records[key{e.Lost.Name, e.Lost.Request}]; r != nil && r.session == s && r.revision == e.Lost.Revision {
			c.lostLocked(r, e.Lost.Reason)
		}
	}
}

// Complete implements cell.Observer.
func (s *session) Complete(all []*cellv1.Holding, revision int64) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	there := make(map[key]bool, len(all))
	for _, h := range all {
		k := key{h.Name, h.Request}
		there[k] = true
		if r := c.records[k]; r != nil && r.session == s {
			c.takeLocked(r, h)
		}
	}
	for k, r := range c.records {
		if r.session == s && !there[k] && r.revision != 0 && r.revision <= revision {
			c.lostLocked(r, cellv1.Reason_REASON_NOT_HELD)
		}
	}
}

// lostLocked notes that a hold or a place is gone.
func (c *client) lostLocked(r *record, reason cellv1.Reason) {
	if r.state == held {
		why := driver.ErrNotHeld
		if reason == cellv1.Reason_REASON_BROKEN {
			why = driver.ErrBroken
		}
		c.tellLocked(driver.Loss{Owners: []string{r.owner}, Err: why})
	}
	c.forgetLocked(r)
}
