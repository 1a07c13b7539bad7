package server

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestSupersededCallConfirmsNothing: of two calls that are parked for one session the first is answered, and
// tells of nothing that has happened. So it must not say that places last either: a client that trusts a claim
// hears first that it is lost.
func TestSupersededCallConfirmsNothing(t *testing.T) {
	a := dial(start(t))
	holder, waiter := a.open(t, 30*time.Second), a.open(t, 30*time.Second)
	a.take(t, holder, "n", nil)
	if _, err := a.acquire(t, waiter, "n", func(m *cellv1.AcquireRequest) { m.Queue = true }); err != nil {
		t.Fatal(err)
	}
	r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: waiter})
	if err != nil {
		t.Fatal(err)
	}
	cursor := r.Cursor
	first := make(chan *cellv1.KeepAliveResponse, 1)
	go func() {
		r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: waiter, Cursor: cursor})
		if err != nil {
			t.Error(err)
			close(first)
			return
		}
		first <- r
	}()
	for superseded := false; !superseded; {
		select {
		case r, ok := <-first:
			if superseded = true; ok && r.Cursor == "" && r.Places != nil {
				t.Errorf("P1: a call that tells nothing says that places last: %v", r)
			} else if ok && r.Cursor != "" {
				t.Log("it was answered before another one came")
			}
		default:
			if _, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: waiter, Cursor: cursor}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
