//go:build soak

package cell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func dial(t *testing.T, addrs string) *Client {
	t.Helper()
	c, err := New(Config{Members: strings.Split(addrs, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openSession(t *testing.T, c *Client) *Session {
	t.Helper()
	s, err := c.Open(t.Context(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return s
}

func TestFiles(t *testing.T) {
	c := dial(t, testserver.StartCell(t, testserver.CellOptions{}).Addrs())
	ctx := t.Context()
	if _, _, err := c.Get(ctx, "app/config"); !errors.Is(err, ErrNoNode) {
		t.Errorf("a node that is not there: %v", err)
	}
	none := int64(0)
	n, err := c.Put(ctx, "app/config", []byte("one"), nil, If{Generation: &none})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "app/config", []byte("one"), nil, If{Generation: &none}); !errors.Is(err, ErrChanged) {
		t.Errorf("making a node that is there: %v", err)
	}
	if got, contents, err := c.Get(ctx, "app/config"); err != nil || string(contents) != "one" || got.String() != n.String() {
		t.Errorf("read are %+v, %q, %v; written was %+v", got, contents, err, n)
	}
	if _, err := c.Put(ctx, "app/config", []byte("two"), nil, If{Generation: &n.ContentGeneration}); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "app/config", If{Generation: &n.ContentGeneration}); !errors.Is(err, ErrChanged) {
		t.Errorf("deleting what has changed: %v", err)
	}
	s := openSession(t, c)
	if n, err := c.Put(ctx, "app/alive", nil, s, If{}); err != nil || n.Session != s.ID() {
		t.Errorf("a node of session %s is %+v, %v", s.ID(), n, err)
	}
	var paths []string
	for n, err := range c.ReadDir(ctx, "app") {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, n.Path)
	}
	if fmt.Sprint(paths) != "[app/alive app/config]" {
		t.Errorf("the children are %v", paths)
	}
	if n, err := c.SetACL(ctx, "app/config", &ACL{Read: "everybody"}, If{}); err != nil || n.Acl.Read != "everybody" {
		t.Errorf("rights: %+v, %v", n, err)
	}
	if err := c.Delete(ctx, "app/alive", If{}); err != nil {
		t.Error(err)
	}
}

// TestWatch: a watch says when it has begun, so that nothing is missed between reading and watching. Events come in
// order, over the death of the member that told them, after which the watch is told to read again.
func TestWatch(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: 500 * time.Millisecond})
	c, writer := dial(t, server.Addrs()), dial(t, server.Members[2].Addr)
	s := openSession(t, c)
	events, ended := make(chan *Event, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for e, err := range s.Watch(ctx, "d", ChildAdded, ChildRemoved) {
			if err != nil {
				ended <- err
				return
			}
			events <- e
		}
	}()
	write := func(path string) {
		t.Helper()
		if _, err := writer.Put(t.Context(), path, nil, nil, If{}); err != nil {
			t.Fatal(err)
		}
	}
	next := func() *Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(20 * time.Second):
			t.Fatal("P7: no event has come")
			return nil
		}
	}
	if e := next(); e.Kind != Reread || e.Path != "d" {
		t.Fatalf("a watch that has begun is told %+v, not to read what there is", e)
	}
	for i := range 10 {
		write(fmt.Sprint("d/", i))
	}
	for i := range 10 {
		if e := next(); e.Child != fmt.Sprint("d/", i) || e.Kind != ChildAdded {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	server.Members[0].Kill() // the session's calls come to it first
	if e := next(); e.Kind != Reread {
		t.Errorf("after the member's death the watch is told %+v", e)
	}
	write("d/after")
	if e := next(); e.Child != "d/after" {
		t.Errorf("after the member's death the event is %+v", e)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a watch whose context has ended ends with %v", err)
	}
}
