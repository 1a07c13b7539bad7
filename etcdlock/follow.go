package etcdlock

import (
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
)

// span is what is watched: one key, or a range of them, with puts or without.
type span struct {
	key, end string
	puts     bool
}

// follower records what happens to the keys of a span, for all calls of Wait of this
// client that need it. It stays for a while after the last of them, so that the next one
// has missed nothing and reads nothing: a lock that is wanted all the time then costs no
// requests but those that take a place and release. Guarded by the client's mutex.
type follower struct {
	c     *client
	dir   string // of the name
	span  span
	watch *watch
	asked driver.Instant
	begun bool
	ended bool    // no more events come
	from  int64   // of everything after this revision it knows
	log   []event // the deletions after that, in order
	put   int64   // the revision of the last put
	users []*waitCall
	idle  *time.Timer // ends it when nobody has used it for a while
}

// maxLog is how many deletions a follower remembers at least.
const maxLog = 128

// dirSpan is the span of all keys of a name.
func dirSpan(dir string, puts bool) span { return span{dir, clientv3.GetPrefixRangeEnd(dir), puts} }

// followLocked returns the follower of a span, made if there is none.
func (c *client) followLocked(dir string, s span, v *waitCall) *follower {
	f := c.followers[s]
	if f == nil {
		f = &follower{c: c, dir: dir, span: s, asked: c.clock.Now()}
		c.followers[s] = f
		c.wanted[dir]++
		f.watch = c.hub.watch(s.key, s.end, s.puts, f.handle)
	}
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	f.users = append(f.users, v)
	return f
}

// leaveLocked ends a call's use of the follower.
func (f *follower) leaveLocked(v *waitCall) {
	f.users = slices.Delete(f.users, slices.Index(f.users, v), slices.Index(f.users, v)+1)
	if len(f.users) > 0 || f.ended {
		return
	}
	var idle *time.Timer
	idle = time.AfterFunc(2*f.c.poll, func() {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		if f.idle == idle {
			f.endLocked()
			f.c.hub.end(f.watch)
		}
	})
	f.idle = idle
}

// endLocked takes the follower out of use.
func (f *follower) endLocked() {
	if f.ended {
		return
	}
	f.ended = true
	delete(f.c.followers, f.span)
	if f.c.wanted[f.dir]--; f.c.wanted[f.dir] == 0 {
		delete(f.c.wanted, f.dir)
	}
}

// handle takes in an event and wakes the calls of Wait that use the follower.
func (f *follower) handle(e event) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	switch e.what {
	case begun:
		f.begun, f.from = true, e.rev
		f.log = slices.DeleteFunc(f.log, func(old event) bool { return old.rev <= e.rev })
	case put, deleted:
		if !f.c.layout.IsEntry(f.dir, e.key) {
			return
		}
		if e.what == put {
			f.put = max(f.put, e.rev)
			break
		}
		if f.span.end == "" {
			f.log = f.log[:0] // of one key the last deletion says everything
		}
		if len(f.log) >= 2*maxLog {
			f.from = f.log[maxLog-1].rev
			f.log = slices.Delete(f.log, 0, maxLog)
		}
		f.log = append(f.log, e)
	case over:
		f.endLocked()
	}
	for _, v := range f.users {
		v.wake()
	}
}

// Contended tells, without asking the store, that a goroutine of this client has waited
// for the name a moment ago.
func (c *client) Contended(name string) bool { return c.isWanted(c.layout.Dir(name)) }

// isWanted reports whether a goroutine of this client has waited for the name a moment
// ago: it is likely to be held.
func (c *client) isWanted(dir string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted[dir] > 0
}
