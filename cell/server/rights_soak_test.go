//go:build soak

package server

import (
	"net/http"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestListsShowWhatOneMayRead: names that one may not read are in no list, and a node below them in none either.
func TestListsShowWhatOneMayRead(t *testing.T) {
	p := newPeople(t)
	admin, reader := p.add(t, "admin", grant{"", toAdminister}), p.add(t, "reader", grant{"a", toRead})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	root, a := dialAs(http.DefaultClient, "http://"+m.Addr(), admin), dialAs(http.DefaultClient, "http://"+m.Addr(), reader)
	s := root.open(t, 30*time.Second)
	for _, name := range []string{"a/one", "ab/two", "b/three"} {
		root.take(t, s, name, nil)
		root.mustWrite(t, name, "x")
	}
	locks, err := a.LocksClient.List(t.Context(), &cellv1.LocksListRequest{})
	if err != nil || len(locks.Locks) != 1 || locks.Locks[0].Name != "a/one" {
		t.Errorf("locks: %v, %v", locks, err)
	}
	for path, want := range map[string]string{"": "a", "a": "a/one"} {
		nodes, err := a.files.ReadDir(t.Context(), &cellv1.ReadDirRequest{Path: path})
		if err != nil || len(nodes.Nodes) != 1 || nodes.Nodes[0].Path != want {
			t.Errorf("below %q: %v, %v", path, nodes, err)
		}
	}
}

// TestWatchedRights: a watch does not begin without the right to read, and tells nothing when that is gone.
func TestWatchedRights(t *testing.T) {
	p := newPeople(t)
	admin, reader := p.add(t, "admin", grant{"", toAdminister}), p.add(t, "reader", grant{"a", toRead}, grant{"b", toRead})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	root, a := dialAs(http.DefaultClient, "http://"+m.Addr(), admin), dialAs(http.DefaultClient, "http://"+m.Addr(), reader)
	root.mustWrite(t, "acl/none", "")
	for _, path := range []string{"a", "a/x", "b"} {
		root.mustWrite(t, path, "0")
	}
	s := a.open(t, 30*time.Second)
	watch := func(path string) error {
		_, err := a.files.Watch(t.Context(), &cellv1.FilesWatchRequest{Session: s, Path: path, Kinds: []cellv1.NodeEventKind{
			cellv1.NodeEventKind_NODE_EVENT_KIND_CONTENTS_CHANGED, cellv1.NodeEventKind_NODE_EVENT_KIND_CHILD_CHANGED,
		}})
		return err
	}
	if err := watch("elsewhere"); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
		t.Errorf("a watch of what one may not read: %v", err)
	}
	for _, path := range []string{"a", "a/x", "b"} {
		if err := watch(path); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(cursor string) *cellv1.KeepAliveResponse {
		r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: s, Cursor: cursor, Now: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	told := func(events []*cellv1.Event) (paths string) {
		for _, e := range events {
			paths += e.GetNode().GetPath() + ">" + e.GetNode().GetChild() + " "
		}
		return paths
	}
	cursor := keep("").Cursor
	root.mustWrite(t, "a/x", "1")
	root.mustWrite(t, "b", "1")
	first := keep(cursor)
	if got := told(first.Events); got != "a/x> a>a/x b> " && got != "a>a/x a/x> b> " {
		t.Errorf("what happens is told as %q", got)
	}
	// One node by its ACL, the other by the list of principals.
	if _, err := root.files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: "a/x", Acl: &cellv1.ACL{Read: "none"}}); err != nil {
		t.Fatal(err)
	}
	p.all["reader"].Rights = []grant{{"a", toRead}}
	p.write(t)
	soon(t, "the right is not gone", func() bool { return reasonOf(watch("b")) == cellv1.Reason_REASON_FORBIDDEN })
	root.mustWrite(t, "a/x", "2")
	root.mustWrite(t, "b", "2")
	root.mustWrite(t, "a", "2")
	if got := told(keep(first.Cursor).Events); got != "a> " {
		t.Errorf("what one may not read any more is told: %q", got)
	}
}
