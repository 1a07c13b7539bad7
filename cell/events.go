package cell

import (
	"context"
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

// watch is one watch of a path.
type watch struct {
	kinds []EventKind
	queue []Event
	news  chan struct{} // one value: there is something in the queue
}

// Watch yields what happens to a node from now on, or under its path if there is none yet. The first event is Reread,
// and says that the watch has begun: whoever reads the node then misses nothing. A consumer that is too slow gets
// Reread too. The watch ends with an error when the context or the session ends.
func (s *Session) Watch(ctx context.Context, path string, kinds ...EventKind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := &watch{kinds: kinds, news: make(chan struct{}, 1)}
		defer s.unwatch(path, w)
		if err := s.subscribe(ctx, path, w); err != nil {
			yield(Event{}, err)
			return
		}
		if !yield(Event{Path: path, Kind: Reread}, nil) {
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

// subscribe adds a watch, and tells the cell what is wanted of the path.
func (s *Session) subscribe(ctx context.Context, path string, w *watch) error {
	s.subscribing.Lock()
	defer s.subscribing.Unlock()
	s.mu.Lock()
	s.watches[path] = append(s.watches[path], w)
	s.mu.Unlock()
	return s.want(ctx, path)
}

// want tells the cell what is wanted of a path by all watches.
func (s *Session) want(ctx context.Context, path string) error {
	s.mu.Lock()
	var kinds []EventKind
	for _, w := range s.watches[path] {
		kinds = append(kinds, w.kinds...)
	}
	s.mu.Unlock()
	slices.Sort(kinds)
	req := &cellv1.FilesWatchRequest{Session: s.text, Path: path, Kinds: slices.Compact(kinds)}
	_, err := file(ctx, s.client, "watch", path, true, cellv1connect.FilesClient.Watch, req)
	return err
}

// unwatch ends a watch. If the cell cannot be told now, it tells events that nobody wants.
func (s *Session) unwatch(path string, w *watch) {
	s.subscribing.Lock()
	defer s.subscribing.Unlock()
	s.mu.Lock()
	left := slices.DeleteFunc(s.watches[path], func(other *watch) bool { return other == w })
	if s.watches[path] = left; len(left) == 0 {
		delete(s.watches, path)
	}
	s.mu.Unlock()
	if s.life.Err() == nil {
		ctx, cancel := context.WithTimeout(s.life, requestWithin)
		defer cancel()
		s.want(ctx, path)
	}
}

// happened passes an event on to those who watch.
func (s *Session) happened(e *cellv1.NodeEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches[e.Path] {
		if e.Kind != Reread && !slices.Contains(w.kinds, e.Kind) {
			continue
		}
		event := Event{e.Path, e.Kind, e.Child, e.ContentGeneration, e.Token, e.Revision}
		if event.Kind == Reread || len(w.queue) >= maxQueued {
			event = Event{Path: e.Path, Kind: Reread, Revision: e.Revision}
			w.queue = nil // what is read again shows it
		}
		w.queue = append(w.queue, event)
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}
