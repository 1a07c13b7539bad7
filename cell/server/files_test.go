package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

func (a api) write(t *testing.T, path, contents string, edit func(*cellv1.PutRequest)) (*cellv1.Node, error) {
	t.Helper()
	m := &cellv1.PutRequest{Path: path, Contents: []byte(contents)}
	if edit != nil {
		edit(m)
	}
	r, err := a.files.Put(t.Context(), m)
	if err != nil {
		return nil, err
	}
	return r.Node, nil
}

func (a api) mustWrite(t *testing.T, path, contents string) *cellv1.Node {
	t.Helper()
	n, err := a.write(t, path, contents, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (a api) read(t *testing.T, path string) (*cellv1.Node, string, error) {
	t.Helper()
	r, err := a.files.Get(t.Context(), &cellv1.GetRequest{Path: path})
	if err != nil {
		return nil, "", err
	}
	return r.Node, string(r.Contents), nil
}

func (a api) children(t *testing.T, path string, limit int32) (all []string) {
	t.Helper()
	for after := ""; ; {
		r, err := a.files.ReadDir(t.Context(), &cellv1.ReadDirRequest{Path: path, After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.Nodes {
			after = n.Path
			all = append(all, n.Path)
		}
		if !r.More {
			return all
		}
	}
}

// TestFiles: contents are read as they were written, and the numbers of a node grow.
func TestFiles(t *testing.T) {
	a := dial(start(t))
	if _, _, err := a.read(t, "f"); reasonOf(err) != cellv1.Reason_REASON_NO_NODE {
		t.Errorf("a node that is not there: %v", err)
	}
	first := a.mustWrite(t, "f", "one")
	if n, contents, err := a.read(t, "f"); err != nil || contents != "one" || n.String() != first.String() {
		t.Errorf("read are %v, %q, %v; written was %v", n, contents, err, first)
	}
	if first.Size != 3 || first.Checksum != checksum([]byte("one")) || first.Instance == 0 || first.ContentGeneration != first.Instance {
		t.Errorf("a new node is %v", first)
	}
	second := a.mustWrite(t, "f", "two")
	if second.Instance != first.Instance || second.ContentGeneration <= first.ContentGeneration || second.AclGeneration != first.AclGeneration {
		t.Errorf("after %v a write gives %v", first, second)
	}
	held := a.take(t, a.open(t, 30*time.Second), "f", nil)
	if r, err := a.files.Stat(t.Context(), &cellv1.StatRequest{Path: "f"}); err != nil || r.Node.LockGeneration != held.Token {
		t.Errorf("the lock of the node with token %d is shown as %v, %v", held.Token, r, err)
	}
	if _, err := a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "f"}); err != nil {
		t.Fatal(err)
	}
	third := a.mustWrite(t, "f", "")
	if third.Instance <= second.ContentGeneration {
		t.Errorf("after %v another node is %v", second, third)
	}
	for what, call := range map[string]func() error{
		"get": func() error {
			_, err := a.files.Get(t.Context(), &cellv1.GetRequest{Path: "f", Instance: first.Instance})
			return err
		},
		"stat": func() error {
			_, err := a.files.Stat(t.Context(), &cellv1.StatRequest{Path: "f", Instance: first.Instance})
			return err
		},
		"put": func() error {
			_, err := a.write(t, "f", "x", func(m *cellv1.PutRequest) { m.Instance = first.Instance })
			return err
		},
		"delete": func() error {
			_, err := a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "f", Instance: first.Instance})
			return err
		},
		"set acl": func() error {
			_, err := a.files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: "f", Instance: first.Instance})
			return err
		},
	} {
		if err := call(); reasonOf(err) != cellv1.Reason_REASON_NO_NODE {
			t.Errorf("%s of a node that is gone, whose path has another: %v", what, err)
		}
	}
	big := bytes.Repeat([]byte{0xff, 0}, 128<<10)
	if n, err := a.write(t, "big", string(big), nil); err != nil || int(n.Size) != len(big) {
		t.Errorf("the largest contents: %v, %v", n, err)
	}
	if _, contents, err := a.read(t, "big"); err != nil || contents != string(big) {
		t.Errorf("the largest contents are read as %d bytes, %v", len(contents), err)
	}
	if _, err := a.write(t, "big", string(big)+"x", nil); reasonOf(err) != cellv1.Reason_REASON_INVALID {
		t.Errorf("P10: too large contents: %v", err)
	}
	if _, err := a.write(t, "a//b", "x", nil); reasonOf(err) != cellv1.Reason_REASON_INVALID {
		t.Errorf("P10: a path with an empty element: %v", err)
	}
}

// TestDirectories: children are listed in order, page by page, nodes or not; a node with children stays.
func TestDirectories(t *testing.T) {
	a := dial(start(t))
	for _, path := range []string{"a", "a-b", "a/x", "a/y/z", "a.c", "b/c/d", "a0", "é/ü"} {
		a.mustWrite(t, path, "")
	}
	for _, limit := range []int32{0, 1, 2, 3} {
		for path, want := range map[string]string{
			"": "a a-b a.c a0 b é", "a": "a/x a/y", "a/y": "a/y/z", "b": "b/c", "a/x": "", "none": "", "é": "é/ü",
		} {
			if got := strings.Join(a.children(t, path, limit), " "); got != want {
				t.Errorf("with a limit of %d, %q has %q, not %q", limit, path, got, want)
			}
		}
	}
	if _, err := a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "a"}); reasonOf(err) != cellv1.Reason_REASON_HAS_CHILDREN {
		t.Errorf("deleting a node with children: %v", err)
	}
}

// TestEphemeral: a node of a session goes with it.
func TestEphemeral(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	id, _, _ := strings.Cut(s, ".")
	n, err := a.write(t, "e", "x", func(m *cellv1.PutRequest) { m.Session = s })
	if err != nil || n.Session != id {
		t.Fatalf("a node of session %s is %v, %v", id, n, err)
	}
	if n := a.mustWrite(t, "e", "y"); n.Session != id {
		t.Errorf("written by another it is %v", n)
	}
	if _, err := a.Close(t.Context(), &cellv1.CloseRequest{Session: s}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.read(t, "e"); reasonOf(err) != cellv1.Reason_REASON_NO_NODE {
		t.Errorf("the node of a session that is closed: %v", err)
	}
}

// watch subscribes a session.
func (a api) watch(t *testing.T, session, path string, kinds ...cellv1.NodeEventKind) {
	t.Helper()
	if _, err := a.files.Watch(t.Context(), &cellv1.FilesWatchRequest{Session: session, Path: path, Kinds: kinds}); err != nil {
		t.Fatal(err)
	}
}

func describe(e *cellv1.NodeEvent) string {
	kind := strings.TrimPrefix(e.Kind.String(), "NODE_EVENT_KIND_")
	return strings.TrimRight(fmt.Sprintf("%s %s %s %d %d", e.Path, kind, e.Child, e.ContentGeneration, e.Token), " ")
}

// events returns the next n events of nodes that a session is told, and the cursor after them.
func (a api) events(t *testing.T, session, cursor string, n int) (all []string, last string) {
	t.Helper()
	for len(all) < n {
		r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: session, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		cursor = r.Cursor
		for _, e := range r.Events {
			if e.GetNode() != nil {
				all = append(all, describe(e.GetNode()))
			}
		}
	}
	return all, cursor
}
