package zklock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestRequestsOfAPair: to take a free name and to release it is three requests, as with Curator: create and
// getChildren in one round trip, and delete.
func TestRequestsOfAPair(t *testing.T) {
	x := fixture{start(t)}
	c := x.open(t)
	const pairs = 200
	for what, ask := range map[string]func(context.Context, driver.Request) (driver.Grant, error){"Try": c.Try, "Enqueue": c.Enqueue} {
		before := received(t, x.Members[0])
		for range pairs {
			g, err := ask(t.Context(), request("pair"))
			if err != nil {
				t.Fatal(err)
			}
			release(t, c, g)
		}
		// A few are for pings, the watches of slow holds, and the asking itself.
		if n := received(t, x.Members[0]) - before; n < 3*pairs || n > 3*pairs+pairs/4 {
			t.Errorf("%d pairs by %s are %d requests, not %d", pairs, what, n, 3*pairs)
		}
	}
}

// TestRequestsOfAHandOver: however many wait, a hand-over is a few requests: of the holder the delete, of
// the next a look, and what it takes to queue again.
func TestRequestsOfAHandOver(t *testing.T) {
	x := fixture{start(t)}
	for _, waiters := range []int{2, 40} {
		var clients []*client
		for range 4 {
			clients = append(clients, x.openWith(t, Config{Poll: time.Minute}))
		}
		holder := take(t, clients[0], request("crowd"))
		var places []driver.Request
		for i := range waiters {
			r := request("crowd")
			r.TTL = time.Minute
			places = append(places, r)
			queue(t, clients[i%4], r)
		}
		var all sync.WaitGroup
		grants := make(chan driver.Grant, waiters)
		for i, r := range places {
			all.Go(func() {
				g, err := await(t.Context(), clients[i%4], r)
				if err != nil {
					t.Error(err)
				}
				grants <- g
			})
		}
		eventually(t, "all watch", func() bool { return watches(t, x.Members[0]) >= waiters })
		before := received(t, x.Members[0])
		release(t, clients[0], holder)
		for i := range waiters {
			g := <-grants
			if g.Owner != places[i].Owner {
				t.Errorf("P8: waiter %d is served out of order", i)
			}
			release(t, clients[i%4], g)
		}
		n := received(t, x.Members[0]) - before
		t.Logf("%d hand-overs are %d requests", waiters, n)
		if most := 3*(waiters+1) + 60; n > most { // delete, getChildren, sometimes a write; pings and commands
			t.Errorf("%d hand-overs are %d requests, more than %d", waiters, n, most)
		}
		all.Wait()
		for _, c := range clients {
			c.Close()
		}
	}
}

// TestRequestsOfManyHolds: ten thousand holds are renewed by one write of their session, once they are
// watched.
func TestRequestsOfManyHolds(t *testing.T) {
	x := fixture{start(t)}
	c := x.openWith(t, Config{Poll: time.Minute})
	const holds = 10_000
	grants := make([]driver.Grant, holds)
	var takers sync.WaitGroup
	requests := make([]driver.Request, holds)
	for i := range requests {
		requests[i] = request("many/" + string(rune('a'+i%26)) + "/" + request("").Owner)
		requests[i].TTL = 2 * time.Minute
	}
	for i := range 64 {
		takers.Go(func() {
			for n := i; n < holds; n += 64 {
				g, err := c.Try(t.Context(), requests[n])
				if err != nil {
					t.Error(err)
					return
				}
				grants[n] = g
			}
		})
	}
	takers.Wait()
	if t.Failed() {
		return
	}
	renew := func() {
		for i, r := range c.Renew(t.Context(), grants) {
			if r.Err != nil {
				t.Fatalf("P2: renewing hold %d: %v", i, r.Err)
			}
		}
	}
	renew() // watches those that are not watched yet
	eventually(t, "all are watched", func() bool { return watches(t, x.Members[0]) == holds })
	eventually(t, "nobody looks at them any more", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.looking
	})
	before := received(t, x.Members[0])
	const rounds = 20
	for range rounds {
		renew()
	}
	if n := received(t, x.Members[0]) - before; n > rounds+10 {
		t.Errorf("P9: %d renewals of %d holds are %d requests", rounds, holds, n)
	} else {
		t.Logf("%d renewals of %d holds are %d requests", rounds, holds, n)
	}
	for some := range slices.Chunk(grants, 500) { // a call is bounded in time
		for i, err := range c.Release(t.Context(), some) {
			if err != nil {
				t.Fatalf("P4: releasing %q: %v", some[i].Name, err)
			}
		}
	}
	eventually(t, "no watch is left", func() bool { return watches(t, x.Members[0]) == 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owners) != 0 || len(c.keepers) != 1 {
		t.Errorf("P9: %d records and %d sessions are left", len(c.owners), len(c.keepers))
	}
}
