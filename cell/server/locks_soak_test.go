//go:build soak

package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// wait is a request that waits.
func wait(d time.Duration) func(*cellv1.AcquireRequest) {
	return func(m *cellv1.AcquireRequest) { m.Wait = durationpb.New(d) }
}

// TestParkedAcquire: a call waits for its turn, in the order in which the calls came.
func TestParkedAcquire(t *testing.T) {
	a := dial(start(t))
	holder := a.open(t, 30*time.Second)
	held := a.take(t, holder, "n", nil)
	const waiters = 5
	order := make(chan int, waiters)
	var calls sync.WaitGroup
	for i := range waiters {
		s := a.open(t, 30*time.Second)
		calls.Go(func() {
			r, err := a.acquire(t, s, "n", wait(30*time.Second))
			if err != nil || r.Token == 0 || r.Claim {
				t.Errorf("P7: waiter %d has got %v, %v", i, r, err)
			}
			order <- i
			a.release(t, s, &cellv1.Release{Name: "n", Token: r.GetToken()})
		})
		for len(a.show(t, "n").Waiters) != i+1 {
			time.Sleep(time.Millisecond)
		}
	}
	a.release(t, holder, &cellv1.Release{Name: "n", Token: held.Token})
	calls.Wait()
	close(order)
	next := 0
	for i := range order {
		if i != next {
			t.Errorf("P8: waiter %d is served when %d is next", i, next)
		}
		next++
	}
}

// TestWaitIsOver: a call whose time is over leaves no place. One whose client has gone leaves one for as
// long as places last.
func TestWaitIsOver(t *testing.T) {
	m := start(t)
	a := dial(m)
	a.take(t, a.open(t, 30*time.Second), "n", nil)
	s := a.open(t, 30*time.Second)
	if r, err := a.acquire(t, s, "n", wait(50*time.Millisecond)); reasonOf(err) != cellv1.Reason_REASON_HELD {
		t.Errorf("a wait that is over has got %v, %v", r, err)
	}
	if l := a.show(t, "n"); len(l.Waiters) != 0 {
		t.Errorf("P6: a wait that is over has left %v", l.Waiters)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, err := a.Acquire(ctx, &cellv1.AcquireRequest{Session: s, Name: "n", Wait: durationpb.New(time.Minute)}); err == nil {
		t.Errorf("a call that was given up has got %v", r)
	}
	for end := time.Now().Add(4 * m.front.placeTTL); len(a.show(t, "n").Waiters) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("P7: the place of a client that has gone stays")
		}
	}
}

// TestEndOfSessions: what a session has goes with it; a session that is killed leaves its names closed for
// its lock-delay, one that is closed does not.
func TestEndOfSessions(t *testing.T) {
	a := dial(start(t))
	other := a.open(t, 30*time.Second)
	open := func() string {
		r, err := a.Open(t.Context(), &cellv1.OpenRequest{LockDelay: durationpb.New(2 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Session
	}
	closed := open()
	a.take(t, closed, "closed", nil)
	if _, err := a.Close(t.Context(), &cellv1.CloseRequest{Session: closed}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Close(t.Context(), &cellv1.CloseRequest{Session: closed}); reasonOf(err) != cellv1.Reason_REASON_SESSION_OVER {
		t.Errorf("closing a session again: %v", err)
	}
	a.take(t, other, "closed", nil)

	killed := open()
	a.take(t, killed, "killed", nil)
	ended := make(chan error, 1)
	go func() {
		var err error
		for cursor := ""; err == nil; {
			var r *cellv1.KeepAliveResponse
			if r, err = a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: killed, Cursor: cursor}); err == nil {
				cursor = r.Cursor
			}
		}
		ended <- err
	}()
	id, _, _ := strings.Cut(killed, ".")
	before := time.Now()
	if _, err := a.Kill(t.Context(), &cellv1.KillRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; reasonOf(err) != cellv1.Reason_REASON_SESSION_OVER {
		t.Errorf("P2: the parked call of a session that is killed says %v", err)
	}
	if r, err := a.acquire(t, killed, "more", nil); reasonOf(err) != cellv1.Reason_REASON_SESSION_OVER {
		t.Errorf("a session that is killed has got %v, %v", r, err)
	}
	r, err := a.acquire(t, other, "killed", wait(30*time.Second))
	if err != nil || r.Token == 0 {
		t.Fatalf("P5: the name of a session that was killed does not open: %v, %v", r, err)
	}
	if after := time.Since(before); after < 2*time.Second {
		t.Errorf("P5: the name of a session that was killed has opened after %v, in its lock-delay", after)
	}
}
