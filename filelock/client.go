//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// client is one client of a store.
type client struct {
	store *store
	clock driver.Clock
	id    string
	idle  idleNames
	taken atomic.Int64 // at least the holds that are not released

	contended [64]atomic.Uint64 // hashes of names that others waited for when they were released

	attached  atomic.Bool   // life is set
	attaching chan struct{} // full while attach is under way
	life      *life
	cleaning  sync.WaitGroup // cleanUp

	busy   sync.RWMutex // held for reading by operations, so that Close waits for them
	closed chan struct{}

	mu      sync.Mutex
	waiters map[uint64]*watcher // by hash of the owner
	next    time.Time           // when watch looks after the clients that they watch

	watching chan struct{} // closed when watch ends; nil: it never began
}

func newClient(s *store, clock driver.Clock) *client {
	var id [16]byte
	rand.Read(id[:])
	c := &client{
		store: s, clock: clock, id: hex.EncodeToString(id[:]), attaching: make(chan struct{}, 1),
		closed: make(chan struct{}), waiters: map[uint64]*watcher{},
	}
	c.idle.pass = c.cleanOld
	return c
}

// attach makes the client one that others see, before it changes anything.
func (c *client) attach(ctx context.Context) error {
	if c.attached.Load() {
		return nil
	}
	select {
	case c.attaching <- struct{}{}:
		defer func() { <-c.attaching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.attached.Load() {
		return nil
	}
	if err := c.store.attach(ctx, storeTime(c.clock.Now())); err != nil {
		return err
	}
	var err error
	if c.life, err = newLife(c.store.place.Load().clients, c.id); err != nil {
		return err
	}
	if err := c.store.confirmBoot(ctx); err != nil {
		c.life.end(true)
		return err
	}
	local.Store(c.id, c)
	c.attached.Store(true)
	c.cleaning.Go(c.cleanUp) // beside the caller, who has a deadline (P11)
	return nil
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.store.caps }

// enter begins an operation; the function that it returns ends it.
func (c *client) enter(ctx context.Context) (leave func(), err error) {
	c.busy.RLock()
	select {
	case <-c.closed:
		c.busy.RUnlock()
		return nil, driver.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		c.busy.RUnlock()
		return nil, err
	}
	return c.busy.RUnlock, nil
}

// do runs an operation on a name, as change does, for a client that is open. It attaches
// the client first.
func (c *client) do(ctx context.Context, name string, op func(*operation) error) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.attach(ctx); err != nil {
		return err
	}
	return c.change(ctx, name, op)
}

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, false)
}

// ask takes the hold or, if it may, a place in the queue.
func (c *client) ask(ctx context.Context, req driver.Request, queue bool) (driver.Grant, error) {
	var g driver.Grant
	if err := checkRequest(&req); err != nil {
		return g, err
	}
	err := c.do(ctx, req.Name, func(t *operation) error {
		if t.wasBroken(req.Owner) {
			return driver.ErrBroken
		}
		if err := t.store.tombstone(req.Owner, t.now); err != nil {
			// Withdrawn, and this is the request arriving late: it must not
			// take effect (P6).
			return err
		}
		h, err := t.ask(req, c.id, queue)
		if err == nil {
			g = t.Grant(h)
		} else if held, ok := err.(*driver.HeldError); queue && ok {
			c.watchAhead(t, req.Owner, held)
		}
		return err
	})
	switch {
	case err == nil:
		c.taken.Add(1)
		return g, nil
	case errors.Is(err, driver.ErrUncertain):
		c.taken.Add(1)
		return driver.Grant{Request: req}, err // to withdraw
	}
	return driver.Grant{}, err
}

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		out[i].Err = c.do(ctx, grants[i].Name, func(t *operation) error {
			h := t.Renew(grants[i].Owner, t.sent, t.now)
			if h == nil {
				return t.lost(grants[i].Owner)
			}
			h.HandedOver(&grants[i])
			out[i].Since, out[i].Valid = h.Since, h.Valid
			return nil
		})
	}
	return out
}

// lost says why an owner has no hold.
func (t *operation) lost(owner string) error {
	if t.wasBroken(owner) {
		return driver.ErrBroken
	}
	return driver.ErrNotHeld
}

// Release implements driver.Driver.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	out := make([]error, len(grants))
	for i := range grants {
		out[i] = c.release(ctx, &grants[i])
	}
	return out
}

func (c *client) release(ctx context.Context, g *driver.Grant) error {
	held := false // in any run of the operation: the one that took the hold away may not be the last
	err := c.do(ctx, g.Name, func(t *operation) error {
		if t.release(g.Owner, g.MinHold, g.Token) {
			held = true
		}
		c.contend(g.Name, len(t.wake) > 0)
		if g.Token == 0 || g.Stray {
			t.store.putTombstone(g.Owner, t.now, t.now.Add(withdrawnFor))
		}
		if held || g.Token == 0 {
			return nil
		}
		return t.lost(g.Owner)
	})
	if err == nil {
		c.unsubscribe(g.Owner)
	}
	if held && g.Token != 0 {
		c.taken.Add(-1)
	}
	return err
}

// putTombstone remembers a withdrawn request, which must not take effect later (P6).
func (s *store) putTombstone(owner string, now, until driver.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombstones.Put(owner, driver.ErrNotHeld, now, until)
}

func (s *store) tombstone(owner string, now driver.Instant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tombstones.Get(owner, now)
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	var granted driver.Grant
	err := c.do(ctx, g.Name, func(t *operation) error {
		h := t.Downgrade(g.Owner, t.sent, t.now)
		if h == nil {
			return t.lost(g.Owner)
		}
		granted = t.Grant(h)
		t.settle() // other readers may come in now
		return nil
	})
	return granted, err
}

// Annotate implements driver.Annotator.
func (c *client) Annotate(ctx context.Context, g driver.Grant) error {
	if err := checkRequest(&g.Request); err != nil {
		return err
	}
	return c.do(ctx, g.Name, func(t *operation) error {
		if !t.Annotate(g.Owner, g.Note) {
			return t.lost(g.Owner)
		}
		return nil
	})
}

// Close implements driver.Driver. What is still held counts as vanished.
func (c *client) Close() error {
	c.busy.Lock()
	c.mu.Lock()
	select {
	case <-c.closed:
		c.mu.Unlock()
		c.busy.Unlock()
		return driver.ErrClosed
	default:
		close(c.closed)
	}
	watching := c.watching
	c.mu.Unlock()
	c.busy.Unlock() // whoever comes now finds it closed
	if c.attached.Load() {
		c.cleaning.Wait()
		c.life.interrupt()
		if watching != nil {
			<-watching
		}
		// The file that stays behind is that of a dead client, and makes the next
		// one clean what this one could not.
		c.life.end(c.cleanAll())
		local.Delete(c.id)
	}
	return c.store.close()
}
