package etcdlock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// vigil is one call of Wait.
type vigil struct {
	c    *client
	r    *record
	req  *driver.Request
	key  string
	view view // what is known of the entries before ours
	f    *follower
	news chan struct{} // one value: something has happened
}

func (v *vigil) wake() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// Wait implements driver.Queuer. Every watch begins at the present revision, so
// that the server tells of an event at once; what happened before that, since the
// view was made, is found by looking again. Whether a key is in the way is judged
// by its create revision, never by its existence alone.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	r := c.record(req.Name, req.Owner)
	if c.isClosed || r == nil || r.state != queued {
		defer c.mu.Unlock()
		if c.isClosed {
			return driver.Grant{}, driver.ErrClosed
		}
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	v := &vigil{
		c: c, r: r, req: &req, key: c.key(r), view: r.place.view, news: make(chan struct{}, 1),
	}
	v.view.entries = slices.Clone(v.view.entries)
	r.place.waits = v
	c.mu.Unlock()
	defer v.end()
	beat := time.NewTicker(2 * c.pulse())
	defer beat.Stop()
	for {
		v.c.mu.Lock()
		next := v.step()
		v.c.mu.Unlock()
		switch next {
		case takeIt:
			return c.claimed(ctx, r, &req)
		case askAgain:
			return driver.Grant{}, driver.ErrHeld
		case rest:
			// Whoever has trouble with the stream must not ask in a tight loop.
			sleep(ctx, c.poll/8)
			return driver.Grant{}, driver.ErrHeld
		case lookAgain:
			seen, err := c.look(ctx, r, &req)
			if err != nil {
				return driver.Grant{}, err
			}
			v.view = *seen
			continue
		}
		select {
		case <-v.news:
		case <-beat.C:
			v.beat(ctx)
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// next is what a vigil does next.
type next uint8

const (
	waitOn next = iota
	takeIt
	lookAgain
	askAgain
	rest
)

// step takes in what the follower has heard, and says what to do. It is called
// with the mutex.
func (v *vigil) step() next {
	if v.r.state != queued {
		return askAgain // Enqueue takes another place, or tells what became of this
	}
	if v.view.free(v.req) {
		return takeIt
	}
	v.choose()
	switch {
	case v.f.gone:
		return rest
	case !v.f.begun:
		return waitOn
	case v.view.rev < v.f.from || v.view.rev < v.f.put:
		return lookAgain
	}
	before := len(v.view.entries)
	for _, e := range v.f.log {
		if e.key == v.key && e.rev > int64(v.r.token) {
			v.c.forget(v.r)
			return askAgain
		}
		if e.rev > v.view.rev {
			v.view.entries = without(v.view.entries, e.key)
		}
	}
	switch {
	case v.view.free(v.req):
		return takeIt
	case v.view.more && len(v.view.entries) < before:
		return lookAgain
	}
	return waitOn
}

// choose sees to it that what is followed is what is in the way: all keys of the
// name while few are before us, so that one release need not lead to a look; else
// the last one before us, so that one release does not wake a thousand waiters.
func (v *vigil) choose() {
	dir := v.c.layout.dir(v.r.name)
	want := dirSpan(dir, v.req.Mode == driver.Shared) // a downgrade is a put
	if v.view.more {
		want = span{key: v.view.entries[len(v.view.entries)-1].key}
	}
	if v.f != nil && v.f.span == want {
		return
	}
	if v.f != nil {
		v.f.leave(v)
	}
	v.f = v.c.follow(dir, want, v)
}

// beat is a sign of life, to the lease of places, which is short; and a look at
// whether the stream of watches has one.
func (v *vigil) beat(ctx context.Context) {
	v.c.mu.Lock()
	silent := v.f != nil && !v.f.begun
	v.c.mu.Unlock()
	if silent {
		v.c.hub.reset(v.f.watch)
	}
	v.r.session.keep(ctx, v.c.clock.Now().Add(-v.c.pulse()))
}

func (v *vigil) end() {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if v.f != nil {
		v.f.leave(v)
	}
	if p := v.r.place; p != nil && p.waits == v {
		p.waits = nil
	}
}
