package zk

// Watch is told when something changes. It may be armed for any number of paths, by operations of
// one session.
type Watch struct {
	c chan struct{}
	f func(path string, e Event) // in place of c

	// Guarded by the session's mutex.
	generation int        // how often Unwatch was called
	at         []watchKey // where it is armed
}

// NewWatch returns a Watch that is not armed.
func NewWatch() *Watch { return &Watch{c: make(chan struct{}, 1)} }

// NewWatchFunc returns a Watch that calls f in place of a channel: with the path that was watched, and
// what happened there. The session waits for f, which therefore must not wait for an answer of the
// session; it may Send. f may still be called once while or after Unwatch is called.
func NewWatchFunc(f func(path string, e Event)) *Watch { return &Watch{f: f} }

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

// C returns the channel that gets a value when the watch fires; its capacity is 1. It fires once
// for each arming, and for all when the session is over. It may also fire when nothing has changed. nil for NewWatchFunc.
func (w *Watch) C() <-chan struct{} { return w.c }

// fired is a call that is due when the session's mutex is free again.
type fired struct {
	f    func(path string, e Event)
	path string
	e    Event
}

func (w *Watch) fire(due []fired, path string, e Event) []fired {
	if w.f != nil {
		return append(due, fired{w.f, path, e})
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
	return due
}

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
func (t watchTable) end(key watchKey, w *Watch, generation int, atServer, absent bool) (needless bool) {
	e := t[key]
	e.arming--
	if atServer && w.generation == generation {
		known := false
		for _, a := range e.armed {
			known = known || a.w == w && a.absent == absent
		}
		if !known {
			e.armed = append(e.armed, armed{w, absent})
			w.at = append(w.at, key)
		}
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

// fire tells all that watch a key, and appends the calls that are due.
func (t watchTable) fire(due []fired, key watchKey, what Event) []fired {
	e := t[key]
	if e == nil {
		return due
	}
	for _, a := range e.armed {
		a.w.at = without(a.w.at, key)
		due = a.w.fire(due, key.path, what)
	}
	e.armed = nil
	t.drop(key)
	return due
}

// tell fires what an event concerns. One of an unknown type fires both: a needless wake-up costs a
// look, and a missing one a waiter.
func (t watchTable) tell(e Event, path string) (due []fired) {
	if e != ChildrenChanged && e != childrenWatchRemoved {
		due = t.fire(due, watchKey{path, false}, e)
	}
	if e != NodeCreated && e != DataChanged && e != dataWatchRemoved {
		due = t.fire(due, watchKey{path, true}, e)
	}
	return due
}

// forget disarms w and returns the entries of the server that nobody needs any more.
func (t watchTable) forget(w *Watch) (needless []watchKey) {
	w.generation++
	for _, key := range w.at {
		e := t[key]
		kept := e.armed[:0]
		for _, a := range e.armed {
			if a.w != w {
				kept = append(kept, a)
			}
		}
		clear(e.armed[len(kept):])
		e.armed = kept
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
	var lists [3][]string // data, exist, children
	size := 0
	flush := func() {
		if size == 0 {
			return
		}
		start := len(out.b)
		out.int32(0)
		out.int32(xidSetWatches)
		out.int32(int32(opSetWatches))
		out.int64(zxid)
		for i := range lists {
			out.strings(lists[i])
			lists[i] = nil
		}
		endFrame(&out, start) // most, and one path, which has been sent before
		size = 0
	}
	for key, e := range t {
		var has [3]bool
		for _, a := range e.armed {
			switch {
			case key.children:
				has[2] = true
			case a.absent:
				has[1] = true
			default:
				has[0] = true
			}
		}
		for i, has := range has {
			if has {
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

func without(keys []watchKey, key watchKey) []watchKey {
	for i, k := range keys {
		if k == key {
			return append(keys[:i], keys[i+1:]...)
		}
	}
	return keys
}
