//go:build soak

package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestCompareAndSwap: many write with the generation that they have read. Each success builds on the one
// before, so none is lost.
func TestCompareAndSwap(t *testing.T) {
	a := dial(start(t))
	zero := int64(0)
	if _, err := a.write(t, "n", "0", func(m *cellv1.PutRequest) { m.IfGeneration = &zero }); err != nil {
		t.Fatal(err)
	}
	if _, err := a.write(t, "n", "0", func(m *cellv1.PutRequest) { m.IfGeneration = &zero }); reasonOf(err) != cellv1.Reason_REASON_CHANGED {
		t.Errorf("making a node that is there: %v", err)
	}
	var writers sync.WaitGroup
	var done atomic.Int64
	for range 8 {
		writers.Go(func() {
			for range 25 {
				for {
					n, contents, err := a.read(t, "n")
					if err != nil {
						t.Error(err)
						return
					}
					var count int
					fmt.Sscan(contents, &count)
					_, err = a.write(t, "n", fmt.Sprint(count+1), func(m *cellv1.PutRequest) { m.IfGeneration = &n.ContentGeneration })
					if err == nil {
						done.Add(1)
						break
					}
					if reasonOf(err) != cellv1.Reason_REASON_CHANGED {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	writers.Wait()
	if _, contents, _ := a.read(t, "n"); contents != fmt.Sprint(done.Load()) || done.Load() != 200 {
		t.Errorf("%d writes have made %s", done.Load(), contents)
	}
}

// everything is all that can be watched.
func everything() (all []cellv1.NodeEventKind) {
	for k := cellv1.NodeEventKind(1); k < cellv1.NodeEventKind_NODE_EVENT_KIND_REREAD; k++ {
		all = append(all, k)
	}
	return all
}

// TestEvents: a session is told what happens to the nodes that it watches, in order.
func TestEvents(t *testing.T) {
	a := dial(start(t))
	opened, err := a.Open(t.Context(), &cellv1.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s, other := opened.Session, a.open(t, 30*time.Second)
	a.watch(t, s, "d", everything()...)
	a.watch(t, s, "d/f", everything()...)
	first := a.mustWrite(t, "d/f", "1")
	second := a.mustWrite(t, "d/f", "2")
	held := a.take(t, s, "d/f", nil)
	if _, err := a.acquire(t, other, "d/f", func(m *cellv1.AcquireRequest) { m.Queue = true }); err != nil {
		t.Fatal(err)
	}
	a.release(t, s, &cellv1.Release{Name: "d/f", Token: held.Token})
	next := a.take(t, other, "d/f", nil)
	if _, err := a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "d/f"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("d/f ADDED  %d 0", first.ContentGeneration), fmt.Sprintf("d CHILD_ADDED d/f %d 0", first.ContentGeneration),
		fmt.Sprintf("d/f CONTENTS_CHANGED  %d 0", second.ContentGeneration), fmt.Sprintf("d CHILD_CHANGED d/f %d 0", second.ContentGeneration),
		fmt.Sprintf("d/f LOCK_ACQUIRED  0 %d", held.Token), "d/f LOCK_WANTED  0 0",
		fmt.Sprintf("d/f LOCK_LOST  0 %d", held.Token), fmt.Sprintf("d/f LOCK_ACQUIRED  0 %d", next.Token),
		"d/f REMOVED  0 0", "d CHILD_REMOVED d/f 0 0",
	}
	got, cursor := a.events(t, s, opened.Cursor, len(want))
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("told is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	a.watch(t, s, "d/f") // not any more
	a.mustWrite(t, "d/f", "3")
	a.mustWrite(t, "d/g", "")
	if got, _ := a.events(t, s, cursor, 2); len(got) != 2 || !strings.HasPrefix(got[0], "d CHILD_ADDED d/f") || !strings.HasPrefix(got[1], "d CHILD_ADDED d/g") {
		t.Errorf("after a subscription has ended, told is %v", got)
	}
	// A client that has lost its cursor, or comes from another member, reads again.
	if got, _ := a.events(t, s, "", 1); len(got) != 1 || got[0] != "d REREAD  0 0" {
		t.Errorf("a client without a cursor is told %v", got)
	}
}
