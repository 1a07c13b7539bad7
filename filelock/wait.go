//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A release grants the name to the head of the queue and wakes that waiter only. Each waiter watches
// the live client directly ahead of it, which holds the name before it does; the head of the queue
// watches the holders. So a death is noticed by the one who gains from it. A holds the name, B and C
// wait, and A is killed: B finds out and asks again. If A and B are killed together, C finds out.

// poll is Caps.Poll. A waiter is told of its grant within microseconds, so the poll only bounds how
// long a stopped waiter delays others (P7), and is long beside the pauses of a loaded machine.
const poll = 500 * time.Millisecond

// tick is how often a waiter looks after those that it watches. It does so less often the more are ahead
// of it, or the more waiters its client has.
const tick = 20 * time.Millisecond

// watcher is a waiter of this client.
type watcher struct {
	wake    chan struct{}
	tick    time.Duration
	watched []string // clients
}

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.subscribe(ctx, req.Owner); err != nil { // before the place is taken: a grant may come at once
		return driver.Grant{}, err
	}
	g, err := c.ask(ctx, req, true)
	if _, queued := err.(*driver.HeldError); !queued {
		c.unsubscribe(req.Owner)
	}
	return g, err
}

// Wait implements driver.Queuer.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.listen(ctx, req.Owner); err != nil {
		return driver.Grant{}, err
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer leave()
	g, err := c.collect(ctx, req)
	if err == nil {
		c.taken.Add(1)
		c.unsubscribe(req.Owner)
	}
	return g, err
}

// listen returns when the waiter is woken, or a client that it watches has died: nobody else would tell.
func (c *client) listen(ctx context.Context, owner string) error {
	c.mu.Lock()
	w := c.waiters[hash(owner)]
	if w == nil {
		c.mu.Unlock()
		return nil
	}
	often, watched := max(w.tick, min(tick*time.Duration(len(c.waiters)/16), poll)), w.watched
	c.mu.Unlock()
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for {
		select {
		case <-w.wake:
			return nil
		case <-ticker.C:
			if !wakes || slices.ContainsFunc(watched, func(id string) bool { return !c.store.alive(id) }) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return driver.ErrClosed
		}
	}
}

// collect returns the owner's hold, if it was handed over. It only reads, without the lock.
func (c *client) collect(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s := c.store
	if !c.attached.Load() {
		return driver.Grant{}, driver.ErrHeld // and whoever asks again is told why
	}
	m := s.memory.Get().(*memory)
	defer s.memory.Put(m)
	names := s.place.Load().names
	st, err := names.readRecord(ctx, fileName(req.Name), m)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Grant{}, driver.ErrHeld
	}
	if err != nil {
		return driver.Grant{}, explain(err, req.Name, names.at(fileName(req.Name)))
	}
	if h := st.Held(req.Owner); h != nil && storeTime(c.clock.Now()) < h.Expires && st.boot == s.boot {
		g := st.Grant(h)
		g.Request = req
		return g, nil
	}
	return driver.Grant{}, driver.ErrHeld
}

// subscribe makes a wake channel for an owner that is about to queue, of a client that it attaches.
func (c *client) subscribe(ctx context.Context, owner string) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.attach(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := hash(owner)
	if c.waiters[id] != nil {
		return nil
	}
	c.waiters[id] = &watcher{wake: make(chan struct{}, 1), tick: tick}
	c.life.listen(c.wake)
	return nil
}

// unsubscribe drops an owner's wake channel.
func (c *client) unsubscribe(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, hash(owner))
}

// Contended implements driver.ContentionHinter: others waited when this client last released the name.
func (c *client) Contended(name string) bool {
	id := hash(name)
	return c.contended[id%uint64(len(c.contended))].Load() == id
}

// contend notes whether others wait for a name that this client releases.
func (c *client) contend(name string, wanted bool) {
	id := hash(name)
	slot := &c.contended[id%uint64(len(c.contended))]
	if wanted {
		slot.Store(id)
	} else if slot.Load() == id {
		slot.Store(0)
	}
}

// watchAhead says whom a waiter watches that has this many places before its own.
func (c *client) watchAhead(t *operation, owner string, ahead int) {
	var watched []string
	for i := ahead - 1; i >= 0 && watched == nil; i-- {
		if id := t.Queue[i].Client; t.rules.Alive(id) {
			watched = []string{id}
		}
	}
	if watched == nil {
		for i := range t.Holds {
			if h := &t.Holds[i]; !h.Closed && !slices.Contains(watched, h.Client) {
				watched = append(watched, h.Client)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[hash(owner)]; w != nil {
		w.tick, w.watched = min(tick*time.Duration(1+ahead/4), poll), watched
	}
}

// wake tells a waiter that it was granted the hold.
func (s *store) wake(w waiter) {
	if c, ok := local.Load(w.client); ok {
		c.(*client).wake(hash(w.owner))
	} else if validID(w.client) {
		s.place.Load().wakeClient(w.client, binary.LittleEndian.AppendUint64(nil, hash(w.owner)))
	}
}

// wake wakes a waiter, by the hash of its owner.
func (c *client) wake(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[id]; w != nil {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// hash is FNV-1a, the same in every process of this host.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(text); i++ {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
