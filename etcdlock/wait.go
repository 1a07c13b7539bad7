package etcdlock

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// waiting is what a caller of Wait hears.
type waiting struct {
	mu     sync.Mutex
	events []event
	news   chan struct{} // one value: there are events, or the place is worth nothing
}

func (w *waiting) hear(e event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	w.wake()
}

func (w *waiting) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// take returns what has been heard since the last call.
func (w *waiting) take() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// vigil is one call of Wait: it watches its own key, and whichever is in the way.
type vigil struct {
	c       *client
	r       *record
	req     *driver.Request
	waiting waiting
	view    view // what is known of the entries before ours

	own, way           *watch
	blocker            string // the key that way watches, if it is one
	ownBegun, wayBegun bool
	started            int64 // the store's revision when they had begun
	changed            bool  // something happened that the view does not tell
	lost               bool  // the own key is gone
	over               bool  // a watch is over
}

// Wait implements driver.Queuer. Every watch begins at the present revision, so
// that the server tells of an event at once; what happened before that, since the
// view was made, is found by looking again. Whether a key is in the way is judged
// by its create revision, never by its existence alone.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	r := c.records[req.Owner]
	if c.isClosed || r == nil || r.state != queued {
		defer c.mu.Unlock()
		if c.isClosed {
			return driver.Grant{}, driver.ErrClosed
		}
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	v := &vigil{c: c, r: r, req: &req, view: r.place.view.clone()}
	v.waiting.news = make(chan struct{}, 1)
	r.place.waits = &v.waiting
	c.mu.Unlock()
	defer v.end()
	v.own = c.hub.watch(c.layout.key(r.name, r.owner), "", false, v.waiting.hear)
	for !v.view.free(&req) {
		if v.way == nil {
			v.watchWay()
		}
		if err := v.hear(ctx); err != nil {
			return driver.Grant{}, err
		}
		if v.ownBegun && v.wayBegun && (v.changed || v.view.rev < v.started || v.view.blind()) {
			if err := v.look(ctx); err != nil {
				return driver.Grant{}, err
			}
		}
	}
	return c.claimed(ctx, r, &req)
}

func (v *vigil) end() {
	v.c.hub.end(v.own)
	v.c.hub.end(v.way)
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if p := v.r.place; p != nil && p.waits == &v.waiting {
		p.waits = nil
	}
}

// watchWay watches what is in the way: for a semaphore everything before us, as
// any release may be the one that makes room; else the last that we cannot stand
// beside, so that a release wakes one waiter and not all.
func (v *vigil) watchWay() {
	v.blocker, v.wayBegun = v.view.blocker(v.req), false
	if v.req.Mode == driver.Slot {
		dir := v.c.layout.dir(v.r.name)
		v.way = v.c.hub.watch(dir, clientv3.GetPrefixRangeEnd(dir), false, v.waiting.hear)
		return
	}
	// For a reader a downgrade makes room too, which is a put.
	v.way = v.c.hub.watch(v.blocker, "", v.req.Mode == driver.Shared, v.waiting.hear)
}

func (v *vigil) endWay() {
	v.c.hub.end(v.way)
	v.way, v.wayBegun = nil, false
}

// hear waits until something has happened, and takes it in. Its error ends the
// wait.
func (v *vigil) hear(ctx context.Context) error {
	silent := time.NewTimer(v.c.poll / 2)
	defer silent.Stop()
	for heard := false; !heard; {
		select {
		case <-v.waiting.news:
			heard = true
		case <-silent.C:
			if !v.ownBegun || !v.wayBegun {
				v.c.hub.reset(v.own) // the connection is dead, or as good as dead
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-v.c.life.Done():
			return driver.ErrClosed
		}
	}
	for _, e := range v.waiting.take() {
		v.take(e)
	}
	v.c.mu.Lock()
	if v.lost {
		v.c.forget(v.r)
	}
	gone := v.c.records[v.r.owner] != v.r || v.r.state != queued
	v.c.mu.Unlock()
	switch {
	case gone:
		return driver.ErrHeld // Enqueue takes another place, or tells what became of this
	case v.over:
		sleep(ctx, v.c.poll/8) // whoever has trouble with the stream must not ask in a tight loop
		return driver.ErrHeld
	}
	return nil
}

// take takes in one event.
func (v *vigil) take(e event) {
	switch {
	case e.watch.id != v.own.id && (v.way == nil || e.watch.id != v.way.id):
		// of a watch that we have ended
	case e.what == over:
		v.over = true
	case e.what == begun:
		v.started = max(v.started, e.rev)
		v.ownBegun = v.ownBegun || e.watch.id == v.own.id
		v.wayBegun = v.wayBegun || e.watch.id != v.own.id
	case e.watch.id == v.own.id:
		v.lost = true
	case e.what == put:
		v.changed = true
	default:
		v.view.entries = without(v.view.entries, e.key)
		if e.key == v.blocker && v.req.Mode != driver.Slot {
			v.endWay()
			if v.view.blind() {
				v.wayBegun = true // there is nothing to watch before we have looked
			}
		}
	}
}

// look reads anew what is before us.
func (v *vigil) look(ctx context.Context) error {
	seen, err := v.c.look(ctx, v.r, v.req)
	if err != nil {
		return err
	}
	v.view, v.changed = *seen, false
	if v.way == nil || !seen.free(v.req) && v.req.Mode != driver.Slot && seen.blocker(v.req) != v.blocker {
		v.endWay()
	}
	return nil
}
