package drivertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var concurrencyCases = []testCase{
	{name: "a stampede has one winner", run: stampede},
	{name: "a stampede for slots", need: needs{Slots: true}, run: slotStampede},
	{name: "no update is lost", run: noLostUpdate},
	{name: "no waiter is lost", need: queues, run: noLostWaiter},
	{name: "one owner asks from everywhere", need: queues, run: oneOwnerEverywhere},
	{name: "renewing while releasing", run: renewWhileReleasing},
}

// together runs n goroutines, spread over the clients, at the same time.
func together(clients []driver.Driver, n int, f func(i int, d driver.Driver)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i, clients[i%len(clients)])
		})
	}
	close(start)
	wg.Wait()
}

func (t *trial) clients(n int) []driver.Driver {
	ds := make([]driver.Driver, n)
	for i := range ds {
		ds[i] = t.open()
	}
	return ds
}

func stampede(t *trial) {
	clients := t.clients(4)
	won := false
	for range 10 {
		var winners, unknown atomic.Int64
		grants := make([]driver.Grant, 16)
		together(clients, 16, func(i int, d driver.Driver) {
			r := t.request()
			g, err := t.try1(d, r)
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
		if n := winners.Load(); n > 1 || n == 0 && unknown.Load() == 0 && t.can.has(opQueue) {
			t.Errorf("P1: a stampede for a free name has %d winners", n)
		}
		won = won || winners.Load() > 0
		for i, g := range grants {
			if g.Owner != "" {
				t.release1(clients[i%4], g)
			}
		}
	}
	if !won && t.can.has(opQueue) {
		t.Errorf("P7: none of ten stampedes for a free name had a winner")
	}
}

func slotStampede(t *trial) {
	clients := t.clients(4)
	var permits atomic.Int64
	together(clients, 16, func(i int, d driver.Driver) {
		r := t.slot(5, 1+i%2)
		if _, err := t.try1(d, r); err == nil {
			permits.Add(int64(r.Permits))
		}
	})
	if n := permits.Load(); n > 5 || n < 4 && t.can.has(opQueue) {
		t.Errorf("P1: a stampede for 5 slots got %d permits", n)
	}
}

// noLostUpdate reads, waits and writes under the lock: if two held it at the same time, an
// update would be lost.
func noLostUpdate(t *trial) {
	clients := t.clients(4)
	var value, updates atomic.Int64
	end := time.Now().Add(max(time.Second, 2*t.poll))
	together(clients, 8, func(i int, d driver.Driver) {
		for range 10 {
			g, err := t.try1(d, t.request())
			for errors.Is(err, driver.ErrHeld) && time.Now().Before(end) {
				time.Sleep(time.Duration(1+i) * 300 * time.Microsecond)
				g, err = t.try1(d, t.request())
			}
			if err != nil {
				if !errors.Is(err, driver.ErrHeld) {
					t.Errorf("P7: Try under contention: %v", err)
				}
				return
			}
			read := value.Load()
			time.Sleep(100 * time.Microsecond) // in which a second holder could read and write
			value.Store(read + 1)
			updates.Add(1)
			t.release1(d, g)
		}
	})
	if value.Load() != updates.Load() {
		t.Errorf("P1: of %d updates under the lock %d were lost", updates.Load(),
			updates.Load()-value.Load())
	}
	if updates.Load() == 0 {
		t.Errorf("P7: nobody was granted a name that eight tried to get")
	}
}

// noLostWaiter: many wait for one name. Each is granted it, and no two trust their holds at
// the same time.
func noLostWaiter(t *trial) {
	clients := t.clients(4)
	const n = 12
	holds := make([]held, n)
	together(clients, n, func(i int, d driver.Driver) {
		r := t.request()
		g := t.arrivesInTime(d, r, n*t.poll, "P7: a waiter among many was never granted the name")
		if g.Owner == "" {
			return
		}
		h := held{Request: r, token: g.Token, from: t.clock.Now(), until: g.Since.Add(g.Valid)}
		time.Sleep(200 * time.Microsecond)
		now := t.clock.Now()
		if err := t.release1(d, g); err != nil && (!driver.Gone(err) || t.clock.Now() < h.until) {
			t.Errorf("P4: the release of a hold that is trusted for %v more returned %v",
				h.until.Sub(now), err)
		}
		h.until = min(h.until, now)
		holds[i] = h
	})
	for _, f := range scanIntervals(holds) {
		t.Errorf("%s", f)
	}
}

func oneOwnerEverywhere(t *trial) {
	a := t.open()
	g := t.take(a, t.request())
	r := t.request()
	together([]driver.Driver{a}, 8, func(_ int, d driver.Driver) {
		if _, err := t.enqueue(d, r); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: Enqueue behind a holder returned %v, not ErrHeld", err)
		}
	})
	t.release(a, g)
	g = t.arrives(a, r, t.poll, "P7: the only waiter was not granted the free name")
	t.release(a, g)
	t.freeNow(a, t.request(), "P6: an owner that asked from many goroutines held several places")
}

func renewWhileReleasing(t *trial) {
	d := t.open()
	for range 10 {
		g := t.take(d, t.request())
		together([]driver.Driver{d}, 4, func(i int, d driver.Driver) {
			if i == 0 {
				t.release1(d, g)
				return
			}
			if r := t.renew1(d, g); r.Err != nil && !driver.Gone(r.Err) {
				t.Errorf("P2: renewing while releasing returned %v", r.Err)
			}
		})
		t.gone(d, g, "P2: a renewal that raced with the release revived the hold")
		t.freeNow(d, t.request(), "P4: a renewal that raced with the release kept the name closed")
	}
}
