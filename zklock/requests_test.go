package zklock

import (
	"context"
	"fmt"
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
			must(t, err)
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

// TestOwnersAreForgotten: a client keeps nothing of the holds that it has released.
func TestOwnersAreForgotten(t *testing.T) {
	x := fixture{start(t)}
	c := x.open(t)
	var takers sync.WaitGroup
	for i := range 64 {
		takers.Go(func() {
			for n := i; n < 2000; n += 64 {
				g, err := c.Try(t.Context(), request(fmt.Sprint("many/", n)))
				if err == nil {
					err = c.Release(t.Context(), []driver.Grant{g})[0]
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	takers.Wait()
	c.locked(func() {
		if len(c.owners) != 0 || len(c.keepers) > 1 || c.mostOwners > 1000 {
			t.Errorf("P9: %d owners and %d sessions are left, of %d", len(c.owners), len(c.keepers), c.mostOwners)
		}
	})
}
