//go:build soak

package server

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

func TestOneLock(t *testing.T) {
	a := dial(start(t))
	one, two := a.open(t, 10*time.Second), a.open(t, 10*time.Second)
	got, err := a.acquire(t, one, "orders/42", nil)
	if err != nil || got.Token == 0 || got.Claim {
		t.Fatalf("a free name: %v, %v", got, err)
	}
	if again, err := a.acquire(t, one, "orders/42", nil); err != nil || again.Token != got.Token {
		t.Errorf("the same request again: %v, %v", again, err)
	}
	if _, err := a.acquire(t, two, "orders/42", nil); reasonOf(err) != cellv1.Reason_REASON_HELD {
		t.Errorf("P1: a held name: %v", err)
	}
	queued, err := a.acquire(t, two, "orders/42", func(m *cellv1.AcquireRequest) { m.Queue = true })
	if err != nil || queued.Token != 0 || queued.Ahead != 1 {
		t.Fatalf("a place: %v, %v", queued, err)
	}
	told := make(chan *cellv1.KeepAliveResponse, 1)
	go func() {
		r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: two, Cursor: "x:0"})
		if err == nil && len(r.Events) == 0 {
			r, err = a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: two, Cursor: r.Cursor})
		}
		if err != nil {
			t.Error(err)
			close(told)
			return
		}
		told <- r
	}()
	time.Sleep(100 * time.Millisecond)
	out, err := a.Release(t.Context(), &cellv1.ReleaseRequest{
		Session: one, Locks: []*cellv1.Release{{Name: "orders/42", Token: got.Token}},
	})
	if err != nil || out.Outcomes[0] != 0 {
		t.Fatalf("a release: %v, %v", out, err)
	}
	r := <-told
	t.Logf("%v", r)
	if len(r.Events) != 1 || r.Events[0].GetGranted().GetToken() <= got.Token {
		t.Errorf("P7: the one that waits is told %v", r)
	}
}
