//go:build soak

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
)

// watched is what a watch of a directory has told: an event, or that events may be missing.
type watched struct {
	Kind       cell.EventKind
	Child      string
	Generation int64
	// Revision is that of the event. Of Reread it is that of a write which its watcher made after it: what happened up
	// to there shows when the watcher reads.
	Revision int64
}

// view is what a watcher knows of a directory's files, by what it was told since it last had to read.
type view struct {
	who   string
	told  map[int64]string // files by generation
	read  []span           // revisions that a watcher has seen by reading
	last  int64            // the revision of the last event
	there map[string]bool  // of the files told of since the last Reread: whether they are there
	has   map[string]int64 // the highest generation of each file
	wrong []string
}

// span is revisions, the last included.
type span struct{ after, until int64 }

func newView(who string) *view {
	return &view{who: who, told: map[int64]string{}, has: map[string]int64{}}
}

// take takes in what a watch has told next. Events come in order, none twice, generations grow, and what is told of a
// file follows from what was told before.
func (v *view) take(w watched) {
	if w.Kind == cell.Reread {
		v.read = append(v.read, span{v.last, w.Revision})
		v.there = map[string]bool{}
		return
	}
	blame := func(why string) { v.wrong = append(v.wrong, fmt.Sprintf("%s is told %+v, %s", v.who, w, why)) }
	if len(v.read) == 0 {
		blame("before the watch has begun")
		return
	}
	if w.Revision <= v.last {
		blame(fmt.Sprintf("after an event of revision %d", v.last))
	}
	v.last = max(v.last, w.Revision)
	there, known := v.there[w.Child]
	switch {
	case w.Kind == cell.ChildAdded && known && there:
		blame("and nothing of the removal before it")
	case w.Kind != cell.ChildAdded && known && !there:
		blame("and nothing of how the file was made")
	}
	if v.there[w.Child] = w.Kind != cell.ChildRemoved; w.Kind == cell.ChildRemoved {
		return
	}
	if w.Generation != w.Revision || w.Generation <= v.has[w.Child] {
		blame(fmt.Sprintf("which is not a generation after %d", v.has[w.Child]))
	}
	v.has[w.Child] = max(v.has[w.Child], w.Generation)
	v.told[w.Generation] = w.Child
}

// lacks reports whether a watcher that is told of everything up to now was not told of a write of which its client
// knows.
func (v *view) lacks(op fileOp) bool {
	return v.told[op.Generation] != op.Path && !slices.ContainsFunc(v.read, func(s span) bool {
		return s.after < op.Generation && op.Generation <= s.until
	})
}

// watcher follows a directory with a session of its own.
type watcher struct {
	session *cell.Session
	cell    *cell.Client
	node    *cell.Node // goes with the session
	mark    string     // a file in the directory, which it writes to see whether it is told
	told    chan int64
}

// watchedDirectory is the directory of files that writers write and watchers watch.
const watchedDirectory = "files"

// follow passes on what the watch tells, until the context ends. It returns why the watch has ended.
func (w *watcher) follow(ctx context.Context, note func(watched)) error {
	for e, err := range w.session.Watch(ctx, watchedDirectory, cell.ChildAdded, cell.ChildChanged, cell.ChildRemoved) {
		if err != nil {
			return err
		}
		told := watched{e.Kind, e.Child, e.ContentGeneration, e.Revision}
		if e.Kind == cell.Reread {
			if told.Revision, err = w.write(ctx); err != nil {
				return err
			}
		}
		note(told)
		if e.Kind == cell.Reread || e.Child == w.mark {
			select {
			case <-w.told: // nobody has asked since
			default:
			}
			w.told <- told.Revision
		}
	}
	return nil
}

// write writes the watcher's mark, for as long as it takes, and returns its generation.
func (w *watcher) write(ctx context.Context) (int64, error) {
	for {
		n, err := w.cell.Put(ctx, w.mark, nil, nil, cell.If{})
		if err == nil {
			return n.ContentGeneration, nil
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// caughtUp waits until the watcher has been told of all that had happened when it was called (P7).
func (w *watcher) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	generation, err := w.write(ctx)
	if err != nil {
		return fmt.Errorf("%s is not written within %v: %w", w.mark, recoverWithin, err)
	}
	for {
		select {
		case told := <-w.told:
			if told >= generation {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the watcher is not told of %s within %v", w.mark, recoverWithin)
		}
	}
}

// TestView: what is wrong with what a watcher is told is found, and nothing where nothing is.
func TestView(t *testing.T) {
	begun, again := watched{Kind: cell.Reread, Revision: 10}, watched{Kind: cell.Reread, Revision: 30}
	added := watched{cell.ChildAdded, "f", 11, 11}
	written := watched{cell.ChildChanged, "f", 12, 12}
	removed := watched{cell.ChildRemoved, "f", 0, 13}
	other := watched{cell.ChildChanged, "g", 14, 14}
	back := watched{cell.ChildAdded, "f", 15, 15}
	for name, c := range map[string]struct {
		good  bool
		told  []watched
		wrote fileOp
	}{
		"all in order":              {true, []watched{begun, added, written, removed, other, back}, fileOp{Path: "f", Generation: 12}},
		"events lost, and said so":  {true, []watched{begun, added, again}, fileOp{Path: "f", Generation: 20}},
		"told before it began":      {false, []watched{added}, fileOp{Path: "f", Generation: 11}},
		"a write lost":              {false, []watched{begun, added, removed}, fileOp{Path: "f", Generation: 12}},
		"a write lost after a read": {false, []watched{begun, added, again}, fileOp{Path: "f", Generation: 31}},
		"a removal lost":            {false, []watched{begun, added, back}, fileOp{Path: "f", Generation: 11}},
		"an addition lost":          {false, []watched{begun, added, removed, {cell.ChildChanged, "f", 15, 15}}, fileOp{Path: "f", Generation: 11}},
		"out of order":              {false, []watched{begun, added, other, written}, fileOp{Path: "f", Generation: 12}},
		"a generation falls":        {false, []watched{begun, added, {cell.ChildChanged, "f", 9, 12}}, fileOp{Path: "f", Generation: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView("a watcher")
			for _, w := range c.told {
				v.take(w)
			}
			if good := len(v.wrong) == 0 && !v.lacks(c.wrote); good != c.good {
				t.Errorf("good: %v, and wrong is %q", good, v.wrong)
			}
		})
	}
}
