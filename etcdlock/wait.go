package etcdlock

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// waitCall is one call of Wait.
type waitCall struct {
	call
	key   string
	view  table.View                  // what is known of the entries before ours
	known int64                       // the last revision that the followers know of
	fs    [table.Nearby + 1]*follower // of what is in the way, and of our own key
	news  chan struct{}               // one value: something has happened
}

// Wait implements driver.Queuer. Every watch begins at the present revision, so that the server tells of an event at
// once; what happened before that, since the view was made, is found by looking again. Whether a key is in the way is
// judged by its create revision, never by its existence alone.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.mu.Lock()
	r := c.recordLocked(req.Name, req.Owner)
	if c.isClosed || r == nil || r.state != queued {
		defer c.mu.Unlock()
		if c.isClosed {
			return driver.Grant{}, driver.ErrClosed
		}
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	v := &waitCall{call: call{c, r, &req}, key: c.key(r), view: r.place.view, news: make(chan struct{}, 1)}
	v.view.Entries = slices.Clone(v.view.Entries)
	r.place.waits = v
	c.mu.Unlock()
	defer v.end()
	beat := time.NewTimer(v.untilBeat())
	defer beat.Stop()
	for {
		if c.life.Err() != nil { // the end of the watches may be noticed first
			return driver.Grant{}, driver.ErrClosed
		}
		c.mu.Lock()
		next := v.stepLocked()
		c.mu.Unlock()
		switch next {
		case takeIt:
			g, err := v.claimed(v.view.Behind)
			return c.begun(ctx, g, err)
		case enqueueAgain:
			return driver.Grant{}, driver.ErrHeld
		case rest:
			// While the stream has trouble, a waiter must not ask in a tight loop.
			pause.Sleep(ctx, c.caps.Poll/8)
			return driver.Grant{}, driver.ErrHeld
		case checkAgain, readAgain:
			seen, err := v.look(ctx, v.view, v.known, next == checkAgain)
			if err != nil {
				return driver.Grant{}, err
			}
			v.view = seen
			continue
		}
		select {
		case <-v.news:
		case <-beat.C:
			s := r.session.Load()
			s.refresh(ctx, c.clock.Now().Add(-s.pulse()))
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
	silent, missed := false, false
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
		// What happened since the view was made is recorded only if the follower had begun.
		if v.known = max(v.known, f.from, f.put); v.view.Rev < max(f.from, f.put) {
			missed = true
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
	case missed:
		return checkAgain
	}
	return waitOn
}

// chooseLocked follows what is in the way, and nothing else. For an exclusive request that is the few keys right
// before its own. A holds, and B and C wait, in this order. When A's key is deleted, C reads what is left while B has
// the name: so C's own grant comes with an event alone, and a release does not wake a thousand waiters. A waiter with
// no others before those follows its own key too.
func (v *waitCall) chooseLocked() {
	var want [table.Nearby + 1]span
	dir := v.c.layout.Dir(v.r.name)
	if v.req.Mode != driver.Exclusive {
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
			f.leaveLocked(v.news)
			v.fs[i] = nil
		}
	}
	for _, s := range want {
		if s.key != "" && !slices.ContainsFunc(v.fs[:], func(f *follower) bool { return f != nil && f.span == s }) {
			v.fs[slices.Index(v.fs[:], nil)] = v.c.followLocked(dir, s, v.news)
		}
	}
}

// untilBeat returns how long to wait before the next sign of life. All waiters of a client
// are on one lease, and one sign is for all of them.
func (v *waitCall) untilBeat() time.Duration {
	s, now := v.r.session.Load(), v.c.clock.Now()
	return max(s.sentBefore(now).Add(s.pulse()).Sub(now), s.pulse()/16)
}

func (v *waitCall) end() {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	for _, f := range v.fs {
		if f != nil {
			f.leaveLocked(v.news)
		}
	}
	if p := v.r.place; p != nil && p.waits == v {
		p.waits, p.view = nil, v.view // what has gone in the meantime does not come back
	}
}

// follower records what happens to the keys of a span, for all calls of this client that need it. It stays for a
// while after the last of them. So the next one has missed nothing and reads nothing, and a lock that is wanted all
// the time costs no requests but those that take a place and release. Guarded by the client's mutex.
type follower struct {
	c     *client
	dir   string // of the name
	span  span
	watch *watch
	begun bool
	ended bool       // no more events come
	from  int64      // of everything after this revision it knows
	log   []deletion // after that, in order
	put   int64      // the revision of the last put
	users []chan struct{}
	idle  *time.Timer // ends it when nobody has used it for a while
}

type deletion struct {
	key string
	rev int64
}

// maxLog is how many deletions a follower remembers.
const maxLog = 128

// followLocked returns the follower of a span, made if there is none. Whatever happens
// is told to the channel, until leaveLocked.
func (c *client) followLocked(dir string, s span, news chan struct{}) *follower {
	i := slices.IndexFunc(c.followers[dir], func(f *follower) bool { return f.span == s })
	if i < 0 {
		i = len(c.followers[dir])
		f := &follower{c: c, dir: dir, span: s}
		c.followers[dir] = append(c.followers[dir], f)
		f.watch = c.watchLocked(s, f.handle)
	}
	f := c.followers[dir][i]
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	f.users = append(f.users, news)
	return f
}

// leaveLocked ends a use of the follower.
func (f *follower) leaveLocked(news chan struct{}) {
	at := slices.Index(f.users, news)
	f.users = slices.Delete(f.users, at, at+1)
	if len(f.users) > 0 || f.ended {
		return
	}
	var idle *time.Timer
	idle = time.AfterFunc(2*f.c.caps.Poll, func() {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		if f.idle == idle && !f.ended {
			f.endLocked()
			f.watch.endLocked()
		}
	})
	f.idle = idle
}

// endLocked takes the follower out of use.
func (f *follower) endLocked() {
	f.ended = true
	all := f.c.followers
	if all[f.dir] = slices.DeleteFunc(all[f.dir], func(other *follower) bool { return other == f }); len(all[f.dir]) == 0 {
		delete(all, f.dir)
	}
}

// handle takes in what the watch brings and tells the users. It is called with the client's mutex.
func (f *follower) handle(r *etcdserverpb.WatchResponse) {
	switch {
	case r == nil:
		f.endLocked()
	case r.Created:
		f.begun, f.from = true, r.Header.GetRevision()
	default:
		for _, e := range r.Events {
			key, rev := string(e.Kv.Key), e.Kv.ModRevision
			switch {
			case !f.c.layout.IsEntry(f.dir, key):
			case e.Type == mvccpb.Event_PUT:
				f.put = rev
			case f.span.end == "": // of one key the last deletion says everything
				f.log = append(f.log[:0], deletion{key, rev})
			default:
				if f.log = append(f.log, deletion{key, rev}); len(f.log) > maxLog {
					f.from, f.log = rev, nil // whoever has not seen them reads again
				}
			}
		}
	}
	for _, news := range f.users {
		wake(news)
	}
}

// Contended tells, without asking the store, that a goroutine of this client has waited for the name a moment ago.
func (c *client) Contended(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.followers[c.layout.Dir(name)]) > 0
}
