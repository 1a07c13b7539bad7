//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// The record of a name stays for a while after its last use, because making a file costs several times
// as much as changing one. The client that left it idle deletes it (P9).

// idleFor is how long a record stays idle at least; at most it is twice as much.
const idleFor = 30 * time.Second

// idleNames are the names that a client left idle, and since when. Names that only a delay keeps closed
// are among them, and stay until they are idle.
type idleNames struct {
	mu    sync.Mutex
	since map[string]driver.Instant
	timer *time.Timer // of the next pass
}

// add notes a name that is left idle now.
func (n *idleNames) add(name string, now driver.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since[name] = now
}

// old returns the names that have been idle for long at an instant.
func (n *idleNames) old(now driver.Instant) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, since := range n.since {
		if now.Sub(since) >= idleFor {
			names = append(names, name)
		}
	}
	n.timer.Reset(idleFor)
	return names
}

// cleanIdle deletes the records of names that have been idle for long.
func (c *client) cleanIdle() { c.cleanIdleAt(storeTime(c.clock.Now())) }

func (c *client) cleanIdleAt(now driver.Instant) {
	if leave, err := c.enter(context.Background()); err == nil {
		leave()
		for _, name := range c.idle.old(now) {
			if leave, err = c.enter(context.Background()); err != nil {
				return
			}
			c.clean(name)
			leave()
		}
	}
}

// cleanAll is the last pass, of a client that is closed. It reports whether nothing is left to clean.
func (c *client) cleanAll() bool {
	for _, name := range c.idle.old(maxInstant) {
		c.clean(name)
	}
	defer c.idle.timer.Stop()
	return len(c.idle.old(maxInstant)) == 0
}

// clean deletes the record of a name if it is idle. Errors need not be told: whoever uses the name meets
// them.
func (c *client) clean(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.idle.mu.Lock()
	delete(c.idle.since, name)
	c.idle.mu.Unlock()
	c.change(ctx, name, func(t *operation) error {
		t.clean = true
		return nil
	})
}

// leftFor is how old a temporary file must be to count as left behind by a process that was killed while
// it made it.
const leftFor = time.Minute

// cleanUp does for clients that were killed what they would have done when they closed: it deletes their
// idle records, all that are idle now, and then their files. When the client is closed meanwhile, the
// next one does the rest.
func (c *client) cleanUp() {
	p := c.store.place.Load()
	ids, _ := p.clients.names()
	var dead []string
	for _, id := range ids {
		if validID(id) && !p.alive(id) && p.clients.proveLife(id) == nil {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		return
	}
	for _, d := range []*folder{p.top, p.names, p.clients} {
		names, _ := d.names()
		for _, name := range names {
			if info, err := d.root.Lstat(name); err == nil && isTemporary(name) && time.Since(info.ModTime()) > leftFor {
				d.root.Remove(name)
			}
		}
	}
	files, _ := p.names.names()
	m := newMemory(c.store)
	for _, file := range files {
		if !strings.HasSuffix(file, suffix) {
			continue
		}
		leave, err := c.enter(context.Background())
		if err != nil {
			return
		}
		if st, err := p.names.readRecord(context.Background(), file, m); err == nil {
			c.clean(st.name)
		}
		leave()
	}
	for _, id := range dead {
		p.clients.root.Remove(id)
	}
}
