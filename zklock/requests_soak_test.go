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
	g := take(t, other, request("watched"))
	eventually(t, "the holder watches its node", func() bool { return watches(t, x.Members[0]) == 1 })
	slots := request("slots")
	slots.Mode, slots.Slots, slots.Permits = driver.Slot, 1, 1
	s := take(t, other, slots)
	eventually(t, "the other holder too", func() bool { return watches(t, x.Members[0]) == 2 })
	var places []driver.Request
	for i := range 30 {
		r := request("watched")
		switch i % 3 {
		case 1:
			r.RW, r.Mode = true, driver.Shared
		case 2:
			r = request("slots")
			r.Mode, r.Slots, r.Permits = driver.Slot, 1, 1
		}
		places = append(places, r)
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
	eventually(t, "the waiters watch", func() bool { return watches(t, x.Members[0]) >= 2+20 })
	time.Sleep(100 * time.Millisecond)
	if n := watches(t, x.Members[0]); n > 2+30 {
		t.Errorf("P9: 30 waiters have %d watches", n-2)
	}
	cancel()
	waiters.Wait()
	for _, r := range places {
		release(t, c, driver.Grant{Request: r})
	}
	eventually(t, "only the holders watch", func() bool { return watches(t, x.Members[0]) == 2 })
	release(t, other, g)
	release(t, other, s)
	eventually(t, "nobody watches", func() bool { return watches(t, x.Members[0]) == 0 })
}
