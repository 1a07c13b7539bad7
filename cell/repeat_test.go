//go:build soak

package cell

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestWritesAreNotRepeated: a write whose answer was lost is repeated only if it cannot be done twice. Of other writes
// the client is told that their outcome is not known. A's second write would undo what B has built on the first.
func TestWritesAreNotRepeated(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: 500 * time.Millisecond})
	other := dial(t, server.Members[1].Addr)
	for name, c := range map[string]struct {
		write func(context.Context, *Client, string, *Node) error
		again bool // it may be repeated
	}{
		"put": {write: func(ctx context.Context, c *Client, path string, _ *Node) error {
			_, err := c.Put(ctx, path, []byte("ours"), nil, If{})
			return err
		}},
		"make": {write: func(ctx context.Context, c *Client, path string, _ *Node) error {
			_, err := c.Put(ctx, path+"/new", []byte("ours"), nil, If{Generation: new(int64)})
			return err
		}},
		"put to a generation": {again: true, write: func(ctx context.Context, c *Client, path string, n *Node) error {
			_, err := c.Put(ctx, path, []byte("ours"), nil, If{Generation: &n.ContentGeneration})
			return err
		}},
		"delete": {write: func(ctx context.Context, c *Client, path string, _ *Node) error { return c.Delete(ctx, path, If{}) }},
		"delete an instance": {again: true, write: func(ctx context.Context, c *Client, path string, n *Node) error {
			return c.Delete(ctx, path, If{Instance: n.Instance})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := chaos.StartProxy(t, server.Members[0].Addr)
			ours := dial(t, link.Addr+","+server.Members[1].Addr)
			n, err := other.Put(t.Context(), name, []byte("theirs"), nil, If{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ours.Stat(t.Context(), name); err != nil { // it has a connection now
				t.Fatal(err)
			}
			link.HoldReplies()
			wrote := make(chan error, 1)
			go func() { wrote <- c.write(t.Context(), ours, name, n) }()
			awaitWrite(t, other, name, n)
			link.Cut()
			err = <-wrote
			sure := err == nil || errors.Is(err, ErrChanged) || errors.Is(err, ErrNoNode)
			if sure != c.again {
				t.Errorf("a write whose answer is lost says %v", err)
			}
			if !sure && Certain(err) {
				t.Errorf("a write whose answer is lost is said to be certain: %v", err)
			}
		})
	}
}

// awaitWrite waits until a node is not as it was, or one is below it.
func awaitWrite(t *testing.T, c *Client, path string, was *Node) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if is, err := c.Stat(t.Context(), path); err == nil && is.String() == was.String() || err != nil && !errors.Is(err, ErrNoNode) {
			if time.Now().After(end) {
				t.Fatalf("nothing is written: %v", err)
			}
			continue
		}
		return
	}
}
