//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"sync"
	"time"
)

// The record of a name stays for a while after its last use, because making a
// file costs several times as much as changing one. The client that left it idle deletes it.

// idleFor is how long a record stays idle at least; at most it is twice as much.
const idleFor = 30 * time.Second

// manyIdle is how many idle names are kept in mind at most, about.
const manyIdle = 4096

// idleNames are the names that a client left idle, in two generations: those
// that are still in the old one when a pass comes are deleted. Names that only a
// delay keeps closed are among them, and stay until they are idle.
type idleNames struct {
	pass func([]string) // gets the old generation

	mu      sync.Mutex
	young   map[string]struct{}
	old     map[string]struct{}
	timer   *time.Timer // nil: nothing to do
	running sync.WaitGroup
	ended   bool
}

func (n *idleNames) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young == nil {
		n.young = map[string]struct{}{}
	}
	n.young[name] = struct{}{}
	delete(n.old, name)
	switch {
	case n.ended:
	case n.timer == nil:
		n.timer = time.AfterFunc(idleFor, n.rotate)
	case len(n.young) == manyIdle:
		n.timer.Reset(0)
	}
}

// rotate makes the young generation the old one.
func (n *idleNames) rotate() {
	n.mu.Lock()
	if n.ended {
		n.mu.Unlock()
		return
	}
	names := keys(n.old)
	n.old, n.young, n.timer = n.young, nil, nil
	if len(n.old) > 0 {
		n.timer = time.AfterFunc(idleFor, n.rotate)
	}
	n.running.Add(1)
	n.mu.Unlock()
	defer n.running.Done()
	n.pass(names)
}

// end stops the passes and takes all the names.
func (n *idleNames) end() []string {
	n.mu.Lock()
	n.ended = true
	if n.timer != nil {
		n.timer.Stop()
	}
	n.mu.Unlock()
	n.running.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	names := append(keys(n.old), keys(n.young)...)
	n.old, n.young = nil, nil
	return names
}

// empty reports whether there are no names, once the passes have ended.
func (n *idleNames) empty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.old)+len(n.young) == 0
}

func keys(m map[string]struct{}) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

// cleanOld deletes the records of names that are idle still.
func (c *client) cleanOld(names []string) {
	for _, name := range names {
		leave, err := c.enter(context.Background())
		if err != nil {
			return
		}
		c.clean(name)
		leave()
	}
}

// cleanAll is the last pass, of a client that is closed. It reports whether
// nothing is left to clean.
func (c *client) cleanAll() bool {
	for _, name := range c.idle.end() {
		c.clean(name)
	}
	return c.idle.empty() && c.taken.Load() == 0 && len(c.waiters) == 0
}

// clean deletes the record of a name if it is idle. Errors need not be told:
// whoever uses the name meets them.
func (c *client) clean(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.change(ctx, name, func(t *operation) error {
		t.clean = true
		return nil
	})
}
