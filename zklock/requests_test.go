package zklock

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestRequestsOfAHandOver: however many wait, a hand-over is a few requests: of the holder the delete, of
// the next a look, and what it takes to queue again.
func TestRequestsOfAHandOver(t *testing.T) {
	const waiters = 40
	x := fixture{start(t)}
	c := x.openWith(t, Config{Poll: time.Minute})
	holder := take(t, c, request("crowd"))
	grants := make(chan driver.Grant, waiters)
	var owners []string
	var all sync.WaitGroup
	for range waiters {
		r := request("crowd")
		r.TTL = time.Minute
		owners = append(owners, r.Owner)
		queue(t, c, r)
		all.Go(func() {
			g, err := await(t.Context(), c, r)
			if err != nil {
				t.Error(err)
			}
			grants <- g
		})
	}
	eventually(t, "all watch", func() bool { return watches(t, x.Members[0]) >= waiters })
	before := received(t, x.Members[0])
	release(t, c, holder)
	for i := range waiters {
		g := <-grants
		if g.Owner != owners[i] {
			t.Errorf("P8: waiter %d is served out of order", i)
		}
		release(t, c, g)
	}
	n := received(t, x.Members[0]) - before
	if most := 3*(waiters+1) + 60; n > most { // delete, getChildren, sometimes a write; pings and commands
		t.Errorf("%d hand-overs are %d requests, more than %d", waiters, n, most)
	}
	all.Wait()
}
