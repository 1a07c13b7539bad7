package zk

import "slices"

// Watch is told when something changes. It may be armed for any number of paths, by operations of one session,
// until it is given to Unwatch.
type Watch struct {
	f func(Event)

	// Guarded by the session's mutex.
	ended bool       // Unwatch was called
	at    []watchKey // where it is armed
}

// NewWatch returns a Watch that calls f once for each arming, when it fires, and for all of them when the session is
// over. It may also fire when nothing has changed. The session waits for f, which MUST NOT wait for an answer of
// the session. f may still be called once while or after Unwatch is called.
func NewWatch(f func(Event)) *Watch { return &Watch{f: f} }

// Event is what a watch is told. A value that is none of these says that something may have changed.
type Event int32

// The events.
const (
	SessionOver     Event = -1 // nothing more will be told
	NodeCreated     Event = 1
	NodeDeleted     Event = 2
	DataChanged     Event = 3
	ChildrenChanged Event = 4

	// What a server says when it has removed a watch for a reason of its own.
	dataWatchRemoved     Event = 5
	childrenWatchRemoved Event = 6
)

// watchKey is one entry of a server's two tables: it has at most one watch of a connection for
// each path's data (and existence), and one for its children.
type watchKey struct {
	path     string
	children bool
}

// keyOf returns what an operation watches.
func keyOf(op *Op) watchKey { return watchKey{op.path, op.code == opChildren} }

// watchEntry is what this session knows of one.
type watchEntry struct {
	// arming counts the operations on their way that will arm it. While there are any, the
	// server's watch is not removed, because the removal would come after the arming.
	arming int
	armed  []armed
}

type armed struct {
	w      *Watch
	absent bool // the node did not exist
}

// list returns in which of the lists of setWatches it is: data, exist, children.
func (a armed) list(key watchKey) int {
	switch {
	case key.children:
		return 2
	case a.absent:
		return 1
	}
	return 0
}

// watchTable is guarded by the session's mutex.
type watchTable map[watchKey]*watchEntry

// begin notes that an operation which arms a watch is queued.
func (t watchTable) begin(key watchKey) {
	e := t[key]
	if e == nil {
		e = &watchEntry{}
		t[key] = e
	}
	e.arming++
}

// end notes how that operation ended, and reports whether the server now has a watch that nobody
// needs. absent is asked for only if the server has armed it.
func (t watchTable) end(key watchKey, w *Watch, atServer, absent bool) (needless bool) {
	e := t[key]
	e.arming--
	if a := (armed{w, absent}); atServer && !w.ended && !slices.Contains(e.armed, a) {
		e.armed = append(e.armed, a)
		w.at = append(w.at, key)
	}
	return t.drop(key) && atServer
}

// drop removes an entry if nothing is left in it, and reports whether it did.
func (t watchTable) drop(key watchKey) bool {
	if e := t[key]; e != nil && e.arming == 0 && len(e.armed) == 0 {
		delete(t, key)
		return true
	}
	return false
}

// fire disarms all that watch a key, and appends the watches that are to be told.
func (t watchTable) fire(due []*Watch, key watchKey) []*Watch {
	e := t[key]
	if e == nil {
		return due
	}
	for _, a := range e.armed {
		if i := slices.Index(a.w.at, key); i >= 0 {
			a.w.at = slices.Delete(a.w.at, i, i+1)
		}
		due = append(due, a.w)
	}
	e.armed = nil
	t.drop(key)
	return due
}

// tell returns the watches that an event concerns. An event of an unknown type concerns both tables: a needless
// wake-up costs a look, and a missing one a waiter.
func (t watchTable) tell(e Event, path string) (due []*Watch) {
	if e != ChildrenChanged && e != childrenWatchRemoved {
		due = t.fire(due, watchKey{path, false})
	}
	if e != NodeCreated && e != DataChanged && e != dataWatchRemoved {
		due = t.fire(due, watchKey{path, true})
	}
	return due
}

// tell calls watches that are due, without the session's mutex.
func tell(due []*Watch, e Event) {
	for _, w := range due {
		w.f(e)
	}
}

// forget disarms w for good and returns the entries of the server that nobody needs any more.
func (t watchTable) forget(w *Watch) (needless []watchKey) {
	w.ended = true
	for _, key := range w.at {
		e := t[key]
		e.armed = slices.DeleteFunc(e.armed, func(a armed) bool { return a.w == w })
		if t.drop(key) {
			needless = append(needless, key)
		}
	}
	w.at = nil
	return needless
}

// rearm returns the requests that set all watches at a new server, which fires those that have
// missed something since zxid. Each stays well below what a server reads.
func (t watchTable) rearm(zxid int64) []byte {
	const most = 128 << 10
	var out encoder
	var lists [3][]string
	size := 0
	flush := func() {
		if size == 0 {
			return
		}
		out.request(xidSetWatches, opSetWatches, func() {
			out.int64(zxid)
			for i := range lists {
				out.strings(lists[i])
				lists[i] = nil
			}
		}) // most, and one path, which has been sent before
		size = 0
	}
	for key, e := range t {
		for i := range lists {
			if slices.ContainsFunc(e.armed, func(a armed) bool { return a.list(key) == i }) {
				lists[i] = append(lists[i], key.path)
				size += 4 + len(key.path)
			}
		}
		if size >= most {
			flush()
		}
	}
	flush()
	return out.b
}
