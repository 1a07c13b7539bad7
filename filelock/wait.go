//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// tick is how often a client that has waiters checks whether another client has died. With
// many clients in the directory it does so less often.
const tick = 20 * time.Millisecond

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.join(ctx); err != nil {
		return driver.Grant{}, err
	}
	// Before the place is: a grant may come at once.
	if err := c.subscribe(req.Owner); err != nil {
		return driver.Grant{}, err
	}
	g, err := c.ask(ctx, req, true)
	if _, queued := err.(*driver.HeldError); !queued {
		c.unsubscribe(req.Owner)
	}
	return g, err
}

// join attaches the client, as an operation.
func (c *client) join(ctx context.Context) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.attach(ctx)
}

// Wait implements driver.Queuer.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	wake := c.waiters[hash(req.Owner)]
	c.mu.Unlock()
	if wake != nil {
		select {
		case <-wake:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-c.closed:
			return driver.Grant{}, driver.ErrClosed
		}
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer leave()
	g, err := c.store.collect(ctx, c.clock, req)
	if err == nil {
		c.taken.Add(1)
		c.unsubscribe(req.Owner)
	}
	return g, err
}

// collect returns the owner's hold, if it was handed over. It only reads, without
// the lock.
func (s *store) collect(ctx context.Context, clock driver.Clock, req driver.Request) (driver.Grant, error) {
	p, err := s.view()
	if err != nil {
		return driver.Grant{}, err
	}
	if p == nil {
		return driver.Grant{}, driver.ErrHeld // and whoever asks again is told why
	}
	file := fileName(req.Name)
	st, err := p.names.readRecord(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Grant{}, driver.ErrHeld
	}
	if err != nil {
		return driver.Grant{}, explain(err, req.Name, p.names.at(file))
	}
	if h := st.Held(req.Owner); h != nil && storeTime(clock.Now()) < h.Expires {
		return st.Grant(h), nil
	}
	return driver.Grant{}, driver.ErrHeld
}

// subscribe makes a wake channel for an owner that is about to queue.
func (c *client) subscribe(owner string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		return driver.ErrClosed
	default:
	}
	id := hash(owner)
	if c.waiters[id] != nil {
		return nil
	}
	c.waiters[id] = make(chan struct{}, 1)
	switch {
	case c.watched == nil:
		c.watched = make(chan struct{})
		go c.watch()
	case len(c.waiters) == 1:
		c.life.interrupt() // it sleeps without a tick
	}
	return nil
}

// unsubscribe drops an owner's wake channel.
func (c *client) unsubscribe(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, hash(owner))
}

// wake wakes a waiter, by the hash of its owner.
func (c *client) wake(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wake := c.waiters[id]; wake != nil {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// wakeAll wakes every waiter of the client, to ask again.
func (c *client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wake := range c.waiters {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// watch is the one goroutine of a client that has had waiters: it wakes those that another
// process has granted the hold, and all when another client has died, for nobody else would
// tell them.
func (c *client) watch() {
	defer close(c.watched)
	known := map[string]bool{}
	var next time.Time
	for {
		c.mu.Lock()
		select {
		case <-c.closed:
			c.mu.Unlock()
			return
		default:
		}
		wait := time.Duration(0)
		if len(c.waiters) > 0 {
			wait = max(time.Until(next), time.Microsecond)
		}
		c.life.arm(wait)
		c.mu.Unlock()
		c.life.listen(c.wake, c.wakeAll)
		if wait > 0 && !time.Now().Before(next) {
			if c.store.refresh(known) {
				c.wakeAll()
			}
			next = time.Now().Add(tick * time.Duration(1+len(known)/16))
		}
	}
}

// refresh brings known, the live clients of other processes, up to date, and
// reports whether one has gone.
func (s *store) refresh(known map[string]bool) (gone bool) {
	ids, err := s.others()
	if err != nil {
		return true // something is wrong: let the waiters find out
	}
	live := map[string]bool{}
	for _, id := range ids {
		if s.alive(id) {
			live[id] = true
		}
	}
	for id := range known {
		gone = gone || !live[id]
	}
	clear(known)
	for id := range live {
		known[id] = true
	}
	return gone
}
