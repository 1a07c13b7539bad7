package drivertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// concurrencyCases call a driver from many goroutines.
var concurrencyCases = []testCase{
	{name: "a stampede has one winner", kinds: []kind{modes[0], modes[2]}, run: stampede},
	{name: "no waiter is lost", need: opQueue, run: noLostWaiter},
	{name: "one owner asks from everywhere", need: opQueue, run: func(t *trial, a, _ driver.Driver) {
		g, r := t.take(a, t.request()), t.request()
		together(8, func(int) {
			if _, err := t.enqueue(a, r); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("P1: Enqueue behind a holder returned %v, not ErrHeld", err)
			}
		})
		t.release(a, g)
		t.release(a, t.arrives(a, r, "P7: the only waiter was not granted the free name"))
		t.freeNow(a, t.request(), "P6: an owner that asked from many goroutines held several places")
	}},
	{name: "renewing while releasing", run: func(t *trial, a, _ driver.Driver) {
		for range 10 {
			g := t.take(a, t.request())
			together(4, func(i int) {
				if i == 0 {
					t.release1(a, g)
				} else if r := t.renew1(a, g); r.Err != nil && !driver.Gone(r.Err) {
					t.Errorf("P2: renewing while releasing returned %v", r.Err)
				}
			})
			t.gone(a, g, "P2: a renewal that raced with the release revived the hold")
			t.freeNow(a, t.request(), "P4: a renewal that raced with the release kept the name closed")
		}
	}},
}

// together runs n goroutines at the same time.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func stampede(t *trial, a, b driver.Driver) {
	clients, won := []driver.Driver{a, b, t.open(), t.open()}, false
	for range 10 {
		var winners, unknown atomic.Int64
		grants := make([]driver.Grant, 16)
		together(16, func(i int) {
			r := t.rival()
			g, err := t.try1(clients[i%4], r)
			switch {
			case err == nil:
				winners.Add(1)
				grants[i] = g
			case errors.Is(err, driver.ErrUncertain): // the store was too slow, and may have granted it
				unknown.Add(1)
				grants[i] = driver.Grant{Request: r}
			case !errors.Is(err, driver.ErrHeld):
				t.Errorf("P7: Try in a stampede: %v", err)
			}
		})
		// A store that keeps no order of arrivals may refuse all of them.
		if n := winners.Load(); n > 1 || n == 0 && unknown.Load() == 0 && t.can(opQueue) {
			t.Errorf("P1: a stampede for a free name has %d winners", n)
		}
		won = won || winners.Load() > 0
		for i, g := range grants {
			if g.Owner != "" {
				t.release1(clients[i%4], g)
			}
		}
	}
	if !won && t.can(opQueue) {
		t.Errorf("P7: none of ten stampedes for a free name had a winner")
	}
}

// noLostWaiter: many wait for one name. Each is granted it, and no two trust their holds at the same time.
func noLostWaiter(t *trial, a, b driver.Driver) {
	clients := []driver.Driver{a, b, t.open(), t.open()}
	const n = 12
	holds := make([]held, n)
	together(n, func(i int) {
		w := t.waitFor(clients[i%4], t.request())
		if err := t.outcome(w, n*t.poll); err != nil {
			t.Errorf("P7: a waiter among many was never granted the name: %v", err)
			return
		}
		g := w.grant
		h := held{Request: g.Request, token: g.Token, from: t.clock.Now(), until: g.Since.Add(g.Valid)}
		time.Sleep(200 * time.Microsecond)
		now := t.clock.Now()
		if err := t.release1(clients[i%4], g); err != nil && (!driver.Gone(err) || t.clock.Now() < h.until) {
			t.Errorf("P4: the release of a hold that is trusted for %v more returned %v", h.until.Sub(now), err)
		}
		h.until = min(h.until, now)
		holds[i] = h
	})
	for _, f := range scanIntervals(holds) {
		t.Errorf("%s", f)
	}
}
