package fallback_test

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
)

// TestWatchWhileOpen: while the breaker is open a watch tells changes in the second store. It ends when the first
// store is in use again, and the next watch tells changes there.
func TestWatchWhileOpen(t *testing.T) {
	closed.Store(true)
	defer closed.Store(false)
	o := &fallback.Options{Probe: 5 * time.Millisecond, After: -1}
	d, err := fallback.Open(t.Context(), mustURL(t, "down://host/watched"), mustURL(t, "mem://watched"), o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	hints, err := d.Watch(t.Context(), "watched")
	if err != nil {
		t.Fatalf("Watch while the breaker is open: %v", err)
	}
	hear := func(more bool) {
		t.Helper()
		select {
		case _, is := <-hints:
			if is != more {
				t.Errorf("the watch goes on: %v, want %v", is, more)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is told")
		}
	}
	take := func(owner string) {
		t.Helper()
		r := driver.Request{Name: "watched", Owner: owner, TTL: time.Minute}
		g, err := d.Try(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		hear(true)
		if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		hear(true)
	}
	take("a")
	closed.Store(false)
	hear(false)
	await(t, "nobody in the second", func() bool { return d.Status().State == fallback.StateClosed })
	if hints, err = d.Watch(t.Context(), "watched"); err != nil {
		t.Fatal(err)
	}
	take("b")
}
