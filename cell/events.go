package cell

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// EventKind is what can happen to a node.
type EventKind = cellv1.NodeEventKind

// The kinds of events.
const (
	ContentsChanged = cellv1.NodeEventKind_NODE_EVENT_KIND_CONTENTS_CHANGED
	ChildAdded      = cellv1.NodeEventKind_NODE_EVENT_KIND_CHILD_ADDED
	ChildRemoved    = cellv1.NodeEventKind_NODE_EVENT_KIND_CHILD_REMOVED
	ChildChanged    = cellv1.NodeEventKind_NODE_EVENT_KIND_CHILD_CHANGED
	Added           = cellv1.NodeEventKind_NODE_EVENT_KIND_ADDED
	Removed         = cellv1.NodeEventKind_NODE_EVENT_KIND_REMOVED
	LockAcquired    = cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_ACQUIRED
	LockLost        = cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_LOST
	LockWanted      = cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_WANTED
	// Reread says that events may be missing: read the node again. Every watch can get it, and begins with it.
	Reread = cellv1.NodeEventKind_NODE_EVENT_KIND_REREAD
)

// Event is something that has happened to a node. It is told after the fact, and in order. Its JSON form is an interface:
// fields may be added, and none changes.
type Event struct {
	Path              string    `json:"path"`
	Kind              EventKind `json:"kind"`
	Child             string    `json:"child,omitempty"`              // of a child: its path
	ContentGeneration int64     `json:"content_generation,omitempty"` // of the node or the child, after it
	Token             int64     `json:"token,omitempty"`              // of a lock
	Revision          int64     `json:"revision"`                     // of the cell
}

// maxQueued is how many events wait for who watches. With more it is told to read again instead.
const maxQueued = 1000

// watch is what happens to a path, until it is yielded.
type watch struct {
	kinds []EventKind
	queue []Event
	news  chan struct{} // one value: there is something in the queue
}

// Watch yields what happens to a node from now on, or under its path if there is none yet. The first event is Reread,
// and says that the watch has begun: whoever reads the node then misses nothing. A consumer that is too slow gets
// Reread too. The watch ends with an error when the context or the session ends. A session has one watch of a path at
// a time.
func (s *Session) Watch(ctx context.Context, path string, kinds ...EventKind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := &watch{kinds: kinds, queue: []Event{{Path: path, Kind: Reread}}, news: make(chan struct{}, 1)}
		s.mu.Lock()
		taken := s.watches[path] != nil
		if !taken {
			s.watches[path] = w
		}
		s.mu.Unlock()
		if taken {
			yield(Event{}, fmt.Errorf("cell: watch %q: the session watches it already", path))
			return
		}
		defer s.unwatch(path)
		if err := s.want(ctx, path, kinds); err != nil {
			yield(Event{}, err)
			return
		}
		for {
			s.mu.Lock()
			queue := w.queue
			w.queue = nil
			s.mu.Unlock()
			for _, e := range queue {
				if !yield(e, nil) {
					return
				}
			}
			if len(queue) > 0 {
				continue
			}
			select {
			case <-w.news:
			case <-ctx.Done():
				yield(Event{}, ctx.Err())
				return
			case <-s.life.Done():
				yield(Event{}, s.Err())
				return
			}
		}
	}
}

// want tells the cell what is wanted of a path.
func (s *Session) want(ctx context.Context, path string, kinds []EventKind) error {
	req := &cellv1.FilesWatchRequest{Session: s.text, Path: path, Kinds: kinds}
	_, err := file(ctx, s.client, "watch", path, true, cellv1connect.FilesClient.Watch, req)
	return err
}

// unwatch ends a watch. If the cell cannot be told now, it tells events that nobody wants.
func (s *Session) unwatch(path string) {
	if s.life.Err() == nil {
		ctx, cancel := context.WithTimeout(s.life, requestWithin)
		defer cancel()
		s.want(ctx, path, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, path) // only now: another watch of the path would lose its subscription
}

// happened passes an event on to who watches.
func (s *Session) happened(e *cellv1.NodeEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[e.Path]
	if w == nil || e.Kind != Reread && !slices.Contains(w.kinds, e.Kind) {
		return
	}
	if e.Kind == Reread || len(w.queue) >= maxQueued { // what is read again shows what is queued
		w.queue = []Event{{Path: e.Path, Kind: Reread, Revision: e.Revision}}
	} else {
		w.queue = append(w.queue, Event{e.Path, e.Kind, e.Child, e.ContentGeneration, e.Token, e.Revision})
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}
