package cell

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// What is known of a node beside its contents; the lists of those who may do what with it; and something that has happened
// to it, which is told after the fact, and in order. Their JSON forms are an interface: fields may be added, and none
// changes.
type (
	Node  = cellv1.Node
	ACL   = cellv1.ACL
	Event = cellv1.NodeEvent
)

// The errors of files. Errors of calls wrap them.
var (
	ErrNoNode      = errors.New("there is no such node")
	ErrChanged     = errors.New("the node is of another generation")
	ErrHasChildren = errors.New("the node has children")
	ErrForbidden   = errors.New("the principal may not do this")
)

// fileErrors are what reasons are in the words of this package.
var fileErrors = map[cellv1.Reason]error{
	cellv1.Reason_REASON_NO_NODE:      ErrNoNode,
	cellv1.Reason_REASON_CHANGED:      ErrChanged,
	cellv1.Reason_REASON_HAS_CHILDREN: ErrHasChildren,
	cellv1.Reason_REASON_FORBIDDEN:    ErrForbidden,
	cellv1.Reason_REASON_SESSION_OVER: ErrSessionOver,
}

// file makes a call about a path.
func file[Q, A any](
	ctx context.Context, c *Client, what, path string, repeat bool, call func(cellv1connect.FilesClient, context.Context, Q) (A, error), q Q,
) (A, error) {
	answer, err := Call(ctx, c, repeat, call, q)
	if known := fileErrors[ReasonOf(err)]; known != nil {
		err = known
	}
	if err != nil {
		err = fmt.Errorf("cell: %s %q: %w", what, path, err)
	}
	return answer, err
}

// Get reads a node and its contents.
func (c *Client) Get(ctx context.Context, path string) (n *Node, contents []byte, err error) {
	r, err := file(ctx, c, "get", path, true, cellv1connect.FilesClient.Get, &cellv1.GetRequest{Path: path})
	return r.GetNode(), r.GetContents(), err
}

// Stat reads a node without its contents.
func (c *Client) Stat(ctx context.Context, path string) (*Node, error) {
	r, err := file(ctx, c, "stat", path, true, cellv1connect.FilesClient.Stat, &cellv1.StatRequest{Path: path})
	return r.GetNode(), err
}

// If says which node a write means. The zero value means any.
type If struct {
	// Generation is that of the contents, or of the rights for SetACL. nil: any. Of Put, a pointer to 0
	// says that there must be no node yet.
	Generation *int64
	// Instance is the node's number. 0: any.
	Instance int64
}

// onceOnly reports whether a write that is made twice can be done only once, because it says which contents or rights
// it means. Other writes are not made again if an answer is lost: the second would undo what B has built on the first.
func (i If) onceOnly() bool { return i.Generation != nil && *i.Generation != 0 }

// Put writes the contents of a node, at most 256 KiB, and makes it if it is not there. A node that is
// made goes with the session, or stays if that is nil. The error is ErrChanged if the node is not as
// If says. If a call has got no answer, Put with a generation may return ErrChanged although it is the
// one that has changed the node: read it then. Without one, or with 0, it returns an error that is not Certain.
func (c *Client) Put(ctx context.Context, path string, contents []byte, s *Session, want If) (*Node, error) {
	req := &cellv1.PutRequest{Path: path, Contents: contents, IfGeneration: want.Generation, Instance: want.Instance}
	if s != nil {
		req.Session = s.text
	}
	r, err := file(ctx, c, "put", path, want.onceOnly(), cellv1connect.FilesClient.Put, req)
	return r.GetNode(), err
}

// Delete removes a node, which must have no children. If a call has got no answer, Delete with a generation or an
// instance may return ErrNoNode although it is the one that has removed the node. Without them it returns an error that
// is not Certain.
func (c *Client) Delete(ctx context.Context, path string, want If) error {
	repeat := want.onceOnly() || want.Instance != 0
	req := &cellv1.DeleteRequest{Path: path, IfGeneration: want.Generation, Instance: want.Instance}
	_, err := file(ctx, c, "delete", path, repeat, cellv1connect.FilesClient.Delete, req)
	return err
}

// ReadDir yields the children of a path, in their order; "" is the top. A child that is no node itself,
// but has nodes below it, has a path and no numbers.
func (c *Client) ReadDir(ctx context.Context, path string) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		for after := ""; ; {
			page, err := file(ctx, c, "list", path, true, cellv1connect.FilesClient.ReadDir, &cellv1.ReadDirRequest{Path: path, After: after})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, n := range page.Nodes {
				after = n.Path
				if !yield(n, nil) {
					return
				}
			}
			if !page.More || len(page.Nodes) == 0 {
				return
			}
		}
	}
}

// SetACL changes who may do what with a node. New nodes below it inherit that; those that are there
// stay as they are.
func (c *Client) SetACL(ctx context.Context, path string, a *ACL, want If) (*Node, error) {
	req := &cellv1.SetACLRequest{Path: path, IfGeneration: want.Generation, Instance: want.Instance, Acl: a}
	r, err := file(ctx, c, "set the rights of", path, want.onceOnly(), cellv1connect.FilesClient.SetACL, req)
	return r.GetNode(), err
}

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

// maxQueued is how many events wait for who watches. With more it is told to read again instead.
const maxQueued = 1000

// Watch yields what happens to a node from now on, or under its path if there is none yet. The first event is Reread,
// and says that the watch has begun: whoever reads the node then misses nothing. A consumer that is too slow gets
// Reread too. The watch ends with an error when the context or the session ends. A session has one watch of a path at
// a time; events that one before it wanted may still come.
func (s *Session) Watch(ctx context.Context, path string, kinds ...EventKind) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		events := make(chan *Event, maxQueued)
		s.mu.Lock()
		taken := s.watches[path] != nil
		if !taken {
			s.watches[path] = events
		}
		s.mu.Unlock()
		if taken {
			yield(nil, fmt.Errorf("cell: watch %q: the session watches it already", path))
			return
		}
		defer s.unwatch(path)
		err := s.want(ctx, path, kinds)
		for e := (&Event{Path: path, Kind: Reread}); err == nil && yield(e, nil); {
			select {
			case e = <-events:
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.life.Done():
				err = s.Err()
			}
		}
		if err != nil {
			yield(nil, err)
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

// happened passes an event on to who watches. If too many wait, or the node is to be read again anyway, that shows what
// has waited.
func (s *Session) happened(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.watches[e.Path]
	if events == nil {
		return
	}
	if len(events) == maxQueued {
		e = &Event{Path: e.Path, Kind: Reread, Revision: e.Revision}
	}
	for e.Kind == Reread && len(events) > 0 {
		select {
		case <-events:
		default: // it has just been yielded
		}
	}
	events <- e
}
