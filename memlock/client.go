package memlock

import (
	"context"
	"iter"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// client is one client of a store.
type client struct {
	store  *Store
	losses chan driver.Loss
	closed chan struct{}
}

// withdrawnFor is how long the store refuses a withdrawn request that comes
// after its withdrawal, if that is more than the request's TTL.
const withdrawnFor = time.Minute

func (c *client) Caps() driver.Caps { return c.store.caps }

// begin starts one operation on a name: it locks the store and returns the
// instant before the request was sent, the store's time, and the record.
func (c *client) begin(name string) (sent, now driver.Instant, r *record) {
	sent = c.store.clock.Now()
	c.store.mu.Lock()
	now = c.store.now()
	return sent, now, c.store.settled(name, now)
}

// end finishes it.
func (c *client) end(name string) {
	c.store.tidy(name)
	c.store.mu.Unlock()
}

func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, false)
}

func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, true)
}

// ask takes the hold or, if it may, a place in the queue.
func (c *client) ask(ctx context.Context, req driver.Request, mayQueue bool) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	sent, now, r := c.begin(req.Name)
	defer c.end(req.Name)
	if f, ok := c.store.farewell(req.Owner, now); ok {
		// Withdrawn, and this is the request arriving late: it must not take
		// effect (P6).
		if f.err == nil {
			f.err = driver.ErrNotHeld
		}
		return driver.Grant{}, f.err
	}
	if r == nil {
		r = &record{}
		r.holds = r.first[:0]
		c.store.records[req.Name] = r
	}
	if h := r.held(req.Owner); h != nil {
		h.extend(sent, now)
		return h.grant(), nil
	}
	p := r.queued(req.Owner)
	if p == nil && r.mismatched(req) {
		return driver.Grant{}, driver.ErrMismatch
	}
	// settle has granted the head of the queue what it could, so whoever is
	// still queued has to wait, and others behind it unless unfair (P8).
	if r.admits(req) && (len(r.queue) == 0 || req.Unfair) {
		r.leave(req.Owner)
		return r.take(req, sent, now, c.store.nextToken()).grant(), nil
	}
	switch {
	case p != nil:
		p.seen, p.asked = now, sent
	case mayQueue:
		r.queue = append(r.queue, place{
			Request: req, joined: now, seen: now, asked: sent, wake: make(chan struct{}, 1),
		})
	}
	return driver.Grant{}, r.heldError(req.Name, now)
}

// grant describes the hold to its owner.
func (h *hold) grant() driver.Grant {
	return driver.Grant{Request: h.Request, Token: h.token, Since: h.since, Valid: h.valid}
}

func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	wake := c.wake(req)
	if wake == nil {
		return driver.Grant{}, driver.ErrHeld // no place: granted or dropped; Enqueue tells which
	}
	select {
	case <-wake:
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-c.closed:
		return driver.Grant{}, driver.ErrClosed
	}
	_, _, r := c.begin(req.Name)
	defer c.end(req.Name)
	if r != nil {
		if h := r.held(req.Owner); h != nil {
			return h.grant(), nil
		}
	}
	return driver.Grant{}, driver.ErrHeld
}

func (c *client) wake(req driver.Request) <-chan struct{} {
	_, _, r := c.begin(req.Name)
	defer c.end(req.Name)
	if r != nil {
		if p := r.queued(req.Owner); p != nil {
			return p.wake
		}
	}
	return nil
}

func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		out[i] = c.renew(ctx, &grants[i])
	}
	return out
}

func (c *client) renew(ctx context.Context, g *driver.Grant) driver.Renewal {
	if err := c.alive(ctx); err != nil {
		return driver.Renewal{Err: err}
	}
	sent, now, r := c.begin(g.Name)
	defer c.end(g.Name)
	if r != nil {
		if h := r.held(g.Owner); h != nil {
			h.extend(sent, now)
			return driver.Renewal{Since: h.since, Valid: h.valid}
		}
	}
	return driver.Renewal{Err: c.lost(g.Owner, now)}
}

// lost says why an owner has no hold.
func (c *client) lost(owner string, now driver.Instant) error {
	if f, ok := c.store.farewell(owner, now); ok && f.err != nil {
		return f.err
	}
	return driver.ErrNotHeld
}

func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	out := make([]error, len(grants))
	for i := range grants {
		out[i] = c.release(ctx, &grants[i])
	}
	return out
}

func (c *client) release(ctx context.Context, g *driver.Grant) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	_, now, r := c.begin(g.Name)
	defer c.end(g.Name)
	if r != nil {
		h := r.held(g.Owner)
		if h != nil {
			r.release(h, g.MinHold, now)
		}
		r.leave(g.Owner)
		c.store.settled(g.Name, now) // whoever is next gets it in this very step
		if h != nil && g.Token != 0 {
			return nil
		}
	}
	if g.Token == 0 {
		c.store.say(g.Owner, nil, now, now.Add(max(g.TTL, withdrawnFor)))
		return nil
	}
	return c.lost(g.Owner, now)
}

func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	sent, now, r := c.begin(g.Name)
	defer c.end(g.Name)
	if r != nil {
		if h := r.held(g.Owner); h != nil {
			h.Mode = driver.Shared
			h.extend(sent, now)
			granted := h.grant()
			c.store.settled(g.Name, now) // other readers may come in now
			return granted, nil
		}
	}
	return driver.Grant{}, c.lost(g.Owner, now)
}

func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	_, now, r := c.begin(name)
	defer c.end(name)
	if r != nil {
		for i := range r.holds {
			h := r.holds[i]
			if !h.closed && h.token == token {
				c.store.say(h.Owner, driver.ErrBroken, now, h.expires)
				r.remove(&h)
				c.store.settled(name, now)
				c.store.tell(driver.Loss{Owners: []string{h.Owner}, Err: driver.ErrBroken})
				return nil
			}
		}
	}
	return driver.ErrNotHeld
}

// tell sends a loss to every client, as a hint: one that does not keep up will
// learn of it by its next renewal.
func (s *Store) tell(loss driver.Loss) {
	for c := range s.clients {
		select {
		case c.losses <- loss:
		default:
		}
	}
}

func (c *client) Losses() <-chan driver.Loss { return c.losses }

func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Info{}, err
	}
	_, now, r := c.begin(name)
	defer c.end(name)
	if r == nil {
		return driver.Info{Name: name}, nil
	}
	return r.info(name, now), nil
}

func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for _, name := range c.store.names(prefix) {
			info, err := c.Inspect(ctx, name)
			if err == nil && info.Idle() {
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// alive returns an error if nothing can be asked of the store any more.
func (c *client) alive(ctx context.Context) error {
	select {
	case <-c.closed:
		return driver.ErrClosed
	default:
		return ctx.Err()
	}
}

func (c *client) Close() error {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if _, open := c.store.clients[c]; !open {
		return driver.ErrClosed
	}
	delete(c.store.clients, c)
	close(c.closed)
	close(c.losses)
	return nil
}
