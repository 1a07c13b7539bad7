package zklock

import (
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// directory is what a session remembers of a directory that it has used lately. The client's mutex guards it.
type directory struct {
	numbers
	watch *zk.Watch // on the directory; nil: none
	used  driver.Instant
}

// knownDirectories is how many directories a session remembers.
const knownDirectories = 4096

// isNew reports whether this session has not used a directory lately, and notes that it does.
func (s *session) isNew(path string) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	now := s.c.clock.Now()
	d := s.directories[path]
	if d == nil {
		if len(s.directories) >= knownDirectories {
			s.forgetDirectoriesLocked(now)
		}
		s.directories[path] = &directory{used: now}
		return true
	}
	d.used = now
	return false
}

// forgetDirectoriesLocked forgets those that were used last at an instant or before it, and returns when the
// first of the others was used that has a watch.
func (s *session) forgetDirectoriesLocked(before driver.Instant) (oldest driver.Instant, ok bool) {
	for path, d := range s.directories {
		switch {
		case d.used <= before:
			delete(s.directories, path)
			if d.watch != nil {
				s.zk.Unwatch(d.watch)
			}
		case d.watch != nil && (!ok || d.used < oldest):
			oldest, ok = d.used, true
		}
	}
	return oldest, ok
}

// predicts reports whether nobody is likely to be before the next node in a directory, so that its number is
// likely to prove that.
func (s *session) predicts(path string) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	d := s.directories[path]
	return d != nil && d.predicts()
}

// made takes in that a node was made, and reports whether certainly nobody is before it.
func (s *session) made(r *zk.Reply) (first bool) {
	s.numbersOf(r.Path, func(d *directory, number int32) { first = d.made(number, r.Connection) })
	return first
}

// isFirst takes in that nobody was before a node when its directory was read.
func (s *session) isFirst(node string, r *zk.Reply) {
	s.numbersOf(node, func(d *directory, number int32) { d.read(number, r.Connection) })
}

// deleted takes in that a node was there and is deleted.
func (s *session) deleted(node string, r *zk.Reply) {
	s.numbersOf(node, func(d *directory, number int32) {
		if d.watch != nil {
			d.deleted(number, r.Connection)
		}
	})
}

// numbersOf calls a function with what is known of the directory of a node, if anything is, and with the
// node's number.
func (s *session) numbersOf(node string, do func(d *directory, number int32)) {
	e, ok := parseEntry(lastElement(node))
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if d := s.directories[parent(node)]; d != nil && ok {
		do(d, e.seq)
	}
}

// watchDirectory returns what watches the directory of a node that is about to be deleted, if that will be of
// use: others do not use it, and there is no watch yet.
func (s *session) watchDirectory(node string) (op zk.Op, ok bool) {
	s.numbersOf(node, func(d *directory, _ int32) {
		if ok = d.watch == nil && d.follows && d.first; ok {
			var w *zk.Watch
			w = zk.NewWatchFunc(func(string, zk.Event) { s.unwatched(d, w) })
			d.watch, op = w, zk.GetData(parent(node), w)
			s.c.timer.Set(d.used.Add(idleFor))
		}
	})
	return op, ok
}

// unwatched notes that a watch on a directory has gone off: the directory may be another one from now on.
func (s *session) unwatched(d *directory, w *zk.Watch) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if d.watch == w {
		d.watch = nil
		d.removed()
	}
}

// notWatched notes that the watch on the directory of a node could not be set.
func (s *session) notWatched(node string) {
	s.numbersOf(node, func(d *directory, _ int32) {
		d.watch = nil
		d.removed()
	})
}
