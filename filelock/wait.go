//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A waiter does not watch all other clients, as a thousand that wait for each other could not. The
// head of a queue watches those who hold the name, and every other waiter the live one directly
// ahead of it, which holds the name before it does. Suppose A holds the name, B and C wait, and
// A is killed: B finds that out, and asks again. If A and B are killed together, C finds it out. If
// B gives up, it tells C, which then watches A. Those far behind watch nobody: when they next confirm
// their places, they see what the dead have left.

// tick is how often a waiter checks whether a client that it watches has died. It does so less often
// the more are ahead of it.
const tick = 20 * time.Millisecond

// watchers is how many of the first in a queue watch others.
const watchers = 16

func tickOf(ahead int) time.Duration { return min(tick*time.Duration(1+ahead/4), poll) }

// watcher is a waiter of this client.
type watcher struct {
	wake    chan struct{}
	ahead   int      // places before its own when it last asked
	watched []string // clients
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

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
	w := c.waiters[hash(req.Owner)]
	c.mu.Unlock()
	if w != nil {
		select {
		case <-w.wake:
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
	buf := s.getBuffers()
	defer s.buffers.Put(buf)
	st, err := p.names.readRecord(ctx, file, buf.page, parseHead)
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
	c.waiters[id] = &watcher{wake: make(chan struct{}, 1)}
	switch {
	case c.watching == nil:
		c.watching = make(chan struct{})
		go c.watch()
	case len(c.waiters) == 1:
		c.life.interrupt() // it sleeps without a tick
	}
	return nil
}

// Contended implements driver.ContentionHinter: others waited when this client last released the
// name.
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

// unsubscribe drops an owner's wake channel.
func (c *client) unsubscribe(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, hash(owner))
}

// watchAhead says whom a waiter watches that has a place in the queue. Held is what it is told.
func (c *client) watchAhead(t *operation, owner string, held *driver.HeldError) {
	var watched []string
	if held.Ahead >= watchers {
		// It watches nobody.
	} else if ahead := t.before(owner, t.store.notKnownDead, t.store.alive); held.Ahead > 0 && ahead != "" {
		watched = []string{ahead}
	} else {
		for i := range t.Holds {
			if h := &t.Holds[i]; !h.Closed && h.Client != "" && !slices.Contains(watched, h.Client) {
				watched = append(watched, h.Client)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiters[hash(owner)]
	if w == nil {
		return
	}
	w.ahead, w.watched = held.Ahead, watched
	if next := time.Now().Add(tickOf(w.ahead)); watched != nil && c.next.Sub(next) > tick {
		c.next = next // it has come forward
		c.life.interrupt()
	}
}

// wake wakes a waiter, by the hash of its owner.
func (c *client) wake(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[id]; w != nil {
		w.signal()
	}
}

// wakeAll wakes every waiter of the client, to ask again.
func (c *client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiters {
		w.signal()
	}
}

// watch is the one goroutine of a client that has had waiters: it wakes those that another
// process has granted the hold, and those that watch a client that has died, for nobody else
// would tell them.
func (c *client) watch() {
	defer close(c.watching)
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
			wait = max(time.Until(c.next), time.Microsecond)
		}
		c.life.arm(wait)
		c.mu.Unlock()
		c.life.listen(c.wake, c.wakeAll)
		c.lookAround()
	}
}

// lookAround wakes the waiters that watch a client that has died, if it is time to look.
func (c *client) lookAround() {
	c.mu.Lock()
	if len(c.waiters) == 0 || time.Now().Before(c.next) {
		c.mu.Unlock()
		return
	}
	dead := map[string]bool{}
	ahead := 100 * watchers // if nobody watches, once in a poll is enough
	for _, w := range c.waiters {
		if w.watched != nil {
			ahead = min(ahead, w.ahead)
		}
		for _, id := range w.watched {
			dead[id] = false
		}
	}
	c.mu.Unlock()
	for id := range dead {
		dead[id] = !c.store.alive(id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiters {
		if slices.ContainsFunc(w.watched, func(id string) bool { return dead[id] }) {
			w.watched = nil // until it has asked
			w.signal()
		}
	}
	c.next = time.Now().Add(tickOf(max(ahead, len(dead))))
}
