//go:build soak

package sqliteconn

import (
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestContentionHint: who has seen that others wait for a name queues at once when it wants it again. Where
// nobody waits any more, and at another name, it tries first.
func TestContentionHint(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	var clients [2]driver.Queuer
	for i := range clients {
		d, err := driver.Open(t.Context(), &url.URL{Scheme: "sqlite", Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		clients[i] = d.(driver.Queuer)
	}
	a, b := clients[0].(driver.Driver), clients[1].(driver.Driver)
	request := func(owner string) driver.Request {
		return driver.Request{Name: "orders/42", Owner: owner, TTL: time.Minute}
	}
	contended := func(name string, want bool) {
		t.Helper()
		if got := b.(driver.ContentionHinter).Contended(name); got != want {
			t.Errorf("%s is contended: %v", name, got)
		}
	}
	g, err := a.Try(t.Context(), request("a"))
	if err != nil {
		t.Fatal(err)
	}
	contended(g.Name, false)
	for range 2 { // it takes its place, and confirms it
		if _, err := clients[1].Enqueue(t.Context(), request("b")); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("a place at a held name: %v", err)
		}
	}
	contended(g.Name, true)
	contended("orders/43", false)
	if err := a.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if g, err = clients[1].Enqueue(t.Context(), request("b")); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	contended(g.Name, false)
}
