//go:build soak

package zklock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestWatchesOfWaiters: each waiter has one watch, and none is left when it gives up.
func TestWatchesOfWaiters(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, other := x.open(t), x.open(t)
	slot := func() driver.Request {
		r := request("slots")
		r.Mode, r.Slots, r.Permits = driver.Slot, 1, 1
		return r
	}
	holds := []driver.Grant{take(t, other, request("watched")), take(t, other, slot())}
	for i, r := range other.Renew(t.Context(), holds) {
		if r.Err != nil { // the first renewal watches the nodes
			t.Fatal(i, r.Err)
		}
	}
	var places []driver.Request
	for range 10 {
		reader := request("watched")
		reader.RW, reader.Mode = true, driver.Shared
		places = append(places, request("watched"), reader, slot())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for _, r := range places {
		queue(t, c, r)
		waiters.Go(func() {
			if _, err := await(ctx, c, r); !errors.Is(err, context.Canceled) {
				t.Errorf("waiting: %v", err)
			}
		})
	}
	// The server counts a path once for all watches of a connection on it.
	eventually(t, "the waiters watch", func() bool { return watches(t, x.Members[0]) >= 20+len(holds) })
	time.Sleep(100 * time.Millisecond)
	if n := watches(t, x.Members[0]) - len(holds); n > len(places) {
		t.Errorf("P9: %d waiters have %d watches", len(places), n)
	}
	cancel()
	waiters.Wait()
	for _, r := range places {
		release(t, c, driver.Grant{Request: r})
	}
	eventually(t, "only the holders watch", func() bool { return watches(t, x.Members[0]) == len(holds) })
	for _, g := range holds {
		release(t, other, g)
	}
	eventually(t, "nobody watches", func() bool { return watches(t, x.Members[0]) == 0 })
}
