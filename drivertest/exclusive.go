package drivertest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// These cases are about which holds a name can have at the same time (P1), and as which lock (P10).

var exclusiveCases = []testCase{
	{name: "one holder", run: func(t *trial, a, b driver.Driver) {
		for range 3 {
			g := t.take(a, t.request())
			t.refused(b, t.request(), "P1: a second client was granted a held name")
			t.refused(a, t.request(), "P1: a second owner of the holder's client was granted the held name")
			t.release(a, g)
			t.freeNow(b, t.request(), "P4: a released name is not free at once, or a refused Try waits for it")
		}
	}},
	// The TTL counts from a request of the caller. Since may be older than the call if the TTL is that of a session.
	{name: "a grant arrives with time to work", kinds: kinds, run: func(t *trial, a, _ driver.Driver) {
		g := t.have(a, t.hold())
		if left := g.Since.Add(g.Valid).Sub(t.clock.Now()); left < t.long/4 {
			t.Errorf("P1: of a fresh hold of %v only %v are left", t.long, left)
		}
	}},
	{name: "held error tells the truth", kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.Note = longNote
		g := t.have(a, r)
		_, err := t.try1(b, t.rival())
		held, ok := errors.AsType[*driver.HeldError](err)
		switch {
		case !errors.Is(err, driver.ErrHeld):
			t.Errorf("P1: Try of a held name returned %v", err)
		case !ok: // hints are optional
		case held.Name != "" && held.Name != t.name:
			t.Errorf("P10: HeldError names %q, not %q", held.Name, t.name)
		case held.Note != "" && held.Note != r.Note:
			t.Errorf("P10: HeldError has note %q, not %q", held.Note, r.Note)
		case held.Token != 0 && held.Token != g.Token:
			t.Errorf("P3: HeldError has token %d, the hold has %d", held.Token, g.Token)
		case held.ExpiresIn < 0 || held.ExpiresIn > t.long+t.caps.Guarantees.Lateness+time.Second:
			t.Errorf("P5: HeldError says that a hold of %v opens in %v", t.long, held.ExpiresIn)
		}
	}},
}

var sharedCases = []testCase{
	{name: "readers and writers", need: opShared, run: func(t *trial, a, b driver.Driver) {
		w := t.take(a, t.request())
		t.refused(b, t.shared(), "P1: a shared hold was granted beside an exclusive one")
		t.release(a, w)
		r1, r2, r3 := t.take(a, t.shared()), t.take(a, t.shared()), t.take(b, t.shared())
		t.refused(b, t.request(), "P1: an exclusive hold was granted beside shared ones")
		t.release(a, r1)
		t.release(b, r3)
		t.refused(a, t.request(), "P1: an exclusive hold was granted beside a shared one")
		t.release(a, r2)
		t.freeNow(b, t.request(), "P4: the last reader's release did not free the name")
	}},
}

var slotsCases = []testCase{
	{name: "permits are counted", need: opSlots, run: func(t *trial, a, b driver.Driver) {
		big := t.take(a, t.slot(4, 3))
		t.refused(b, t.slot(4, 2), "P1: a semaphore of 4 gave 5 permits")
		small := t.take(b, t.slot(4, 1))
		t.refused(a, t.slot(4, 1), "P1: a semaphore of 4 gave a fifth permit")
		t.release(a, big)
		big = t.take(b, t.slot(4, 3))
		t.refused(a, t.slot(4, 1), "P1: a semaphore of 4 gave a fifth permit after a release")
		t.release(b, small)
		t.refused(a, t.slot(4, 2), "P1: a semaphore of 4 gave a fifth permit after the release of one")
		t.release(b, big)
		t.freeNow(a, t.slot(4, 4), "P4: a semaphore is not whole after every release")
	}},
}

// mismatchCases hold a name as one kind of lock and ask for it as another.
var mismatchCases = []testCase{
	{name: "a semaphore where a mutex is held", need: opSlots, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.request(), t.slot(3, 1)) }},
	{name: "a mutex where a semaphore is held", need: opSlots, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.slot(3, 1), t.request()) }},
	{name: "a reader where a semaphore is held", need: opSlots | opShared, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.slot(3, 1), t.shared()) }},
	{name: "a semaphore where a reader is", need: opSlots | opShared, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.shared(), t.slot(3, 1)) }},
	{name: "more slots", need: opSlots, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.slot(3, 1), t.slot(4, 1)) }},
	{name: "fewer slots", need: opSlots, run: func(t *trial, a, b driver.Driver) { t.mismatch(a, b, t.slot(3, 1), t.slot(2, 1)) }},
	{name: "in the queue", need: opSlots | opQueue, run: func(t *trial, a, b driver.Driver) {
		g, other := t.take(a, t.slot(2, 2)), t.slot(3, 1)
		_, err := t.enqueue(b, other)
		t.mismatched(err, g.Request, other)
		t.release(a, g)
		t.freeNow(a, t.request(), "P10: a request of another kind took a place in the queue")
	}},
}

func (t *trial) mismatch(a, b driver.Driver, held, other driver.Request) {
	t.Helper()
	g := t.take(a, held)
	_, err := t.try1(b, other)
	t.mismatched(err, held, other)
	t.renew(a, g)
	t.release(a, g)
	// A kind is the name's only while it is used.
	t.freeNow(b, other, "P10: an idle name cannot be used as another kind of lock")
}

func (t *trial) mismatched(err error, held, other driver.Request) {
	t.Helper()
	if !errors.Is(err, driver.ErrMismatch) {
		t.Errorf("P10: asking as %v of %d slots for a name held as %v of %d slots returned %v, not ErrMismatch",
			other.Mode, other.Slots, held.Mode, held.Slots, err)
	} else if want := driver.Mismatch(held.Slots, other.Slots); held.Slots > 0 && other.Slots > 0 && !strings.Contains(err.Error(), want.Error()) {
		t.Errorf("P10: the error does not say the numbers of slots: %v, not %v", err, want)
	}
}

// readWriteCases are about Request.RW, which tells a half of a read-write lock from a mutex. In Holdfast's own
// layouts the two are one lock.
var readWriteCases = []testCase{
	{name: "a mutex and a write lock", run: func(t *trial, a, b driver.Driver) { t.oneLock(a, b, t.request(), readWrite(t.request())) }},
	{name: "a write lock and a mutex", run: func(t *trial, a, b driver.Driver) { t.oneLock(a, b, readWrite(t.request()), t.request()) }},
	{name: "a mutex and a read lock", need: opShared, run: func(t *trial, a, b driver.Driver) { t.oneLock(a, b, t.request(), readWrite(t.shared())) }},
	{name: "a read lock and a mutex", need: opShared, run: func(t *trial, a, b driver.Driver) { t.oneLock(a, b, readWrite(t.shared()), t.request()) }},
	{name: "a write lock waits behind a mutex", need: opQueue, run: func(t *trial, a, b driver.Driver) {
		g, writer := t.take(a, t.request()), readWrite(t.request())
		t.queued(b, writer)
		t.release(a, g)
		g = t.arrives(b, writer, "P7: a write lock that waited behind a mutex was not granted")
		t.refused(a, t.request(), "P1: a mutex was granted beside a write lock that had waited")
		t.release(b, g)
	}},
}

func readWrite(r driver.Request) driver.Request {
	r.RW = true
	return r
}

// oneLock holds a name as one lock and asks for it as the other.
func (t *trial) oneLock(a, b driver.Driver, held, other driver.Request) {
	t.Helper()
	g := t.take(a, held)
	_, err := t.try1(b, other)
	if err == nil {
		t.Errorf("P1: a mutex and a half of a read-write lock of one name were held at the same time")
	} else if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P10: a mutex and a half of a read-write lock of one name are one lock, but the request returned %v, not ErrHeld", err)
	}
	t.release(a, t.renew(a, g))
	if err != nil {
		t.freeNow(b, other, "P4: the release of a mutex, or of a half of a read-write lock, did not free the name for the other")
	}
}

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
