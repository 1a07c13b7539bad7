package etcdlock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// waitCall is one call of Wait.
type waitCall struct {
	c     *client
	r     *record
	req   *driver.Request
	key   string
	view  table.View                  // what is known of the entries before ours
	known int64                       // the last revision that the followers know of
	fs    [table.Nearby + 1]*follower // of what is in the way, and of our own key
	news  chan struct{}               // one value: something has happened
}

func (v *waitCall) wake() {
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
	p := c.places[r]
	v := &waitCall{
		c: c, r: r, req: &req, key: c.key(r), view: p.view, news: make(chan struct{}, 1),
	}
	v.view.Entries = slices.Clone(v.view.Entries)
	p.waits = v
	c.mu.Unlock()
	defer v.end()
	beat := time.NewTimer(v.untilBeat())
	defer beat.Stop()
	for {
		if c.life.Err() != nil { // the end of the watches may be noticed first
			return driver.Grant{}, driver.ErrClosed
		}
		v.c.mu.Lock()
		next := v.stepLocked()
		v.c.mu.Unlock()
		switch next {
		case takeIt:
			return c.claimed(ctx, r, &req, v.view.Behind)
		case enqueueAgain:
			return driver.Grant{}, driver.ErrHeld
		case rest:
			// While the stream has trouble, a waiter must not ask in a tight loop.
			sleep(ctx, c.poll/8)
			return driver.Grant{}, driver.ErrHeld
		case checkAgain, readAgain:
			var seen *table.View
			var err error
			stop := r.session.Load().beating(ctx)
			if next == checkAgain {
				seen, err = c.still(ctx, r, &req, v.view, v.known)
			}
			if seen == nil && err == nil {
				seen, err = c.readView(ctx, r, &req, v.known)
			}
			stop()
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
			beat.Reset(v.untilBeat())
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-c.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// next is what a call of Wait does next.
type next uint8

const (
	waitOn next = iota
	takeIt
	checkAgain // whether what was in the way still is
	readAgain
	enqueueAgain
	rest
)

// stepLocked takes in what the followers have recorded, and returns what to do.
func (v *waitCall) stepLocked() next {
	if v.r.state != queued {
		return enqueueAgain // Enqueue takes another place, or tells what became of this
	}
	v.chooseLocked()
	silent := false
	for _, f := range v.fs {
		switch {
		case f == nil:
			continue
		case f.ended:
			return rest
		case !f.begun:
			silent = true
			continue
		}
		if v.known = max(v.known, f.from, f.put); v.view.Rev < max(f.from, f.put) {
			continue
		}
		for _, e := range f.log {
			if e.key == v.key && e.rev > v.r.created {
				v.c.forgetLocked(v.r)
				return enqueueAgain
			}
			if e.rev > v.view.Rev {
				v.view.Entries = table.Without(v.view.Entries, e.key)
				v.known = max(v.known, e.rev)
			}
		}
	}
	switch {
	case v.view.Free(v.req):
		return takeIt
	case silent:
		return waitOn // one read is enough for all followers that begin
	case v.view.More && len(v.view.Entries) < table.Nearby:
		return readAgain
	case v.missedLocked():
		return checkAgain
	}
	return waitOn
}

// missedLocked reports whether something may have happened since the view was made that
// the followers have not recorded.
func (v *waitCall) missedLocked() bool {
	return slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && v.view.Rev < max(f.from, f.put) })
}

// chooseLocked follows what is in the way, and nothing else. For an exclusive request that
// is the few keys right before its own. Suppose that A holds, and that B and C wait, in
// this order. When A's key is deleted, C reads what is left, while B has the name; so C's
// own grant comes with an event alone, and a release does not wake a thousand waiters. A
// waiter with no others before those follows its own key too.
func (v *waitCall) chooseLocked() {
	var want [table.Nearby + 1]span
	if dir := v.c.layout.Dir(v.r.name); v.req.Mode != driver.Exclusive {
		want[0] = dirSpan(dir, v.req.Mode == driver.Shared) // a downgrade is a put
	} else {
		for i, e := range v.view.Entries {
			want[i].key = e.Key
		}
		if !v.view.More {
			want[table.Nearby].key = v.key
		}
	}
	for i, f := range v.fs {
		if f != nil && !slices.Contains(want[:], f.span) {
			f.leaveLocked(v)
			v.fs[i] = nil
		}
	}
	for _, s := range want {
		if s.key != "" && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && f.span == s }) {
			v.fs[slices.Index(v.fs[:], nil)] = v.c.followLocked(v.c.layout.Dir(v.r.name), s, v)
		}
	}
}

// untilBeat returns how long to wait before the next sign of life. All waiters of a client
// are on one lease, and one sign is for all of them.
func (v *waitCall) untilBeat() time.Duration {
	s, now := v.r.session.Load(), v.c.clock.Now()
	return max(s.sentBefore(now).Add(s.pulse()).Sub(now), s.pulse()/16)
}

// beat gives a sign of life, to the lease of places, which is short; and checks that the
// stream of watches gives one. What was asked for a moment ago is no sign
// of the contrary: on a busy machine, breaking the stream, which all of this client
// share, would lead to nothing but more to do.
func (v *waitCall) beat(ctx context.Context) {
	v.c.mu.Lock()
	var silent *watch
	for _, f := range v.fs {
		if f != nil && !f.begun && v.c.clock.Now() >= f.asked.Add(v.c.poll) {
			silent = f.watch
		}
	}
	v.c.mu.Unlock()
	if silent != nil {
		v.c.hub.reset(silent)
	}
	s := v.r.session.Load()
	s.refresh(ctx, v.c.clock.Now().Add(-s.pulse()))
}

func (v *waitCall) end() {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	for _, f := range v.fs {
		if f != nil {
			f.leaveLocked(v)
		}
	}
	if p := v.c.places[v.r]; p != nil && p.waits == v {
		p.waits, p.view = nil, v.view // what has gone meanwhile does not come back
	}
}
