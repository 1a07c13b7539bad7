//go:build soak

package etcdlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestHandOverCost: a hand-off takes a few messages, however many wait.
func TestHandOverCost(t *testing.T) {
	const atMost = 8 // of each: delete, look, watch and its end; and the keepalives of the waiters
	for _, waiters := range []int{16, 256} {
		t.Run(fmt.Sprint(waiters), func(t *testing.T) {
			server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
			w := newQueueOf(t, server.Addrs(), waiters)
			defer w.end()
			const turns = 10
			before := messages(t, server.Addrs())
			for range turns {
				w.pass()
			}
			if n := messages(t, server.Addrs()) - before; n > turns*atMost {
				t.Errorf("P8: %d hand-offs among %d took %d messages, at most %d are in order", turns, waiters, n, turns*atMost)
			} else {
				t.Logf("%d hand-offs took %d messages", turns, n)
			}
		})
	}
}

// TestFarBehind: who takes a place learns how many are before it, so that it confirms the
// place less often where they are many; there its lease lasts a second longer.
func TestFarBehind(t *testing.T) {
	for _, waiters := range []int{2, driver.FarBehind + 2} {
		server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: 5 * time.Second})
		w := newQueueOf(t, server.Addrs(), waiters)
		c := dial(t, server.Addrs(), nil)
		try := request("queue")
		if _, err := c.Try(t.Context(), try); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: Try of a held name: %v", err)
		}
		for _, again := range []string{"a place", "its confirmation"} {
			_, err := c.Enqueue(t.Context(), try)
			var held *driver.HeldError
			if !errors.As(err, &held) || held.Ahead != waiters+1 {
				t.Errorf("behind %d others, %s: %+v, %v", waiters+1, again, held, err)
			}
		}
		c.mu.Lock()
		far := c.record(try.Name, try.Owner).session.Load().seconds > c.minSeconds
		c.mu.Unlock()
		if far != (waiters >= driver.FarBehind) {
			t.Errorf("behind %d others the place's lease is longer: %v", waiters+1, far)
		}
		if err := c.Release(t.Context(), []driver.Grant{{Request: try}})[0]; err != nil {
			t.Error(err)
		}
		c.Close()
		w.end()
	}
}

// TestHolderOfACrowd: who is refused at once is told who holds the name, however many
// wait: both by a client that has asked for nothing yet and by one that has.
func TestHolderOfACrowd(t *testing.T) {
	const crowd = 40
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	holder, waiters, other := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
	for _, c := range []*client{holder, waiters, other} {
		t.Cleanup(func() { c.Close() })
	}
	req := request("crowd")
	req.Note = "the holder"
	g := take(t, holder, req)
	for range crowd {
		r := request("crowd")
		r.Note = "a waiter"
		line(t, waiters, r)
	}
	try := func(when string) *driver.HeldError {
		t.Helper()
		_, err := other.Try(t.Context(), request("crowd"))
		var held *driver.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("P1: Try of a held name, %s: %v", when, err)
		}
		return held
	}
	check := func(when string) {
		t.Helper()
		if held := try(when); held.Note != "the holder" || held.Token != g.Token {
			t.Errorf("%s: a Try is told %+v; token %d holds the name", when, held, g.Token)
		}
	}
	check("at first")
	take(t, other, request("another"))
	check("later")
	if err := holder.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if held := try("after a release"); held.Note != "a waiter" || held.Token <= g.Token {
		t.Errorf("after a release: a Try is told %+v", held)
	}
}
