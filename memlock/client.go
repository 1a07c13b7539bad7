package memlock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// client is one client of a store.
type client struct {
	store  *Store
	losses chan driver.Loss
	closed chan struct{}
}

// withdrawnFor is how long the store refuses a withdrawn request that comes
// after its withdrawal: within one process it cannot be under way for longer.
const withdrawnFor = time.Minute

func (c *client) Caps() driver.Caps { return c.store.caps }

// begin starts one operation on a name: it locks the store and returns the
// instant before the request was sent, the store's time, and the record.
func (c *client) begin(name string) (sent, now driver.Instant, r *entry) {
	sent = c.store.clock.Now()
	c.store.mu.Lock()
	now = c.store.now()
	return sent, now, c.store.settled(name, now)
}

// end finishes it.
func (c *client) end(name string) {
	c.store.hint(name)
	c.endUnchanged(name)
}

// endUnchanged finishes one that has changed nothing. Watchers inspect the name, and must not
// wake one another by that.
func (c *client) endUnchanged(name string) {
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
	if err := c.store.tombstones.Get(req.Owner, now); err != nil {
		// Withdrawn, and this is the request arriving late: it must not take
		// effect (P6).
		return driver.Grant{}, err
	}
	if r == nil {
		r = &entry{}
		r.Holds = r.first[:0]
		c.store.records[req.Name] = r
	}
	h, err := r.Ask(req, "", mayQueue, sent, now, &c.store.rules)
	if err != nil {
		if p := r.Queued(req.Owner); p != nil && p.Wake == nil {
			p.Wake = make(chan struct{}, 1)
		}
		return driver.Grant{}, err
	}
	return r.Grant(h), nil
}

func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	_, _, r := c.begin(req.Name)
	var wake <-chan struct{}
	if r != nil {
		if p := r.Queued(req.Owner); p != nil {
			wake = p.Wake
		}
	}
	c.end(req.Name)
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
	_, _, r = c.begin(req.Name)
	defer c.end(req.Name)
	if r != nil {
		if h := r.Held(req.Owner); h != nil {
			return r.Grant(h), nil
		}
	}
	return driver.Grant{}, driver.ErrHeld
}

func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return c.renew(ctx, grants, func(r *entry, g *driver.Grant, sent, now driver.Instant) *record.Hold {
		h := r.Renew(g.Owner, sent, now)
		if h != nil {
			h.HandedOver(g)
		}
		return h
	})
}

func (c *client) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return c.renew(ctx, grants, func(r *entry, g *driver.Grant, sent, now driver.Instant) *record.Hold {
		return r.Raise(g, sent, now, &c.store.rules)
	})
}

// renew renews each hold in its way.
func (c *client) renew(
	ctx context.Context, grants []driver.Grant, way func(r *entry, g *driver.Grant, sent, now driver.Instant) *record.Hold,
) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	for i := range grants {
		g := &grants[i]
		if out[i].Err = c.alive(ctx); out[i].Err != nil {
			continue
		}
		sent, now, r := c.begin(g.Name)
		var h *record.Hold
		if r != nil {
			h = way(r, g, sent, now)
		}
		if h != nil {
			out[i] = driver.Renewal{Since: h.Since, Valid: h.Valid}
		} else {
			out[i].Err = c.lost(g.Owner, now)
		}
		c.end(g.Name)
	}
	return out
}

// lost says why an owner has no hold.
func (c *client) lost(owner string, now driver.Instant) error {
	if err := c.store.tombstones.Get(owner, now); err != nil {
		return err
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
	held := false
	if r != nil {
		held = r.Release(g.Owner, g.MinHold, g.Token, now, &c.store.rules)
		c.store.settled(g.Name, now) // whoever is next gets it in this very step
	}
	gone := c.lost(g.Owner, now)
	if g.Token == 0 || g.Stray {
		c.store.tombstones.Put(g.Owner, driver.ErrNotHeld, now, now.Add(withdrawnFor))
	}
	if held || g.Token == 0 {
		return nil
	}
	return gone
}

func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	sent, now, r := c.begin(g.Name)
	defer c.end(g.Name)
	if r != nil {
		if h := r.Downgrade(g.Owner, sent, now); h != nil {
			granted := r.Grant(h)
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
		if h, ok := r.Break(token); ok {
			c.store.tombstones.Put(h.Owner, driver.ErrBroken, now, h.Expires)
			c.store.settled(name, now)
			c.store.tell(driver.Loss{Owners: []string{h.Owner}, Err: driver.ErrBroken})
			return nil
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
	defer c.endUnchanged(name)
	if r == nil {
		return driver.Info{Name: name}, nil
	}
	return r.Info(name, now), nil
}

func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		c.store.mu.Lock()
		names := slices.Sorted(maps.Keys(c.store.records))
		c.store.mu.Unlock()
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
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
