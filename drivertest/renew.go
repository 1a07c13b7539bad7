package drivertest

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// These cases are about how long a hold lasts (P1, P2, P5).

var renewCases = []testCase{
	{name: "extends the hold", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		ends := t.until(g)
		for range 4 {
			t.pass(t.ttl / 3)
			r := t.renew1(a, g)
			if r.Err != nil && t.now() >= ends {
				return // this machine stood still until the hold had expired
			}
			if r.Err != nil {
				t.Fatalf("P2: a hold in time for its renewal was not renewed: %v", r.Err)
			}
			g.Since, g.Valid = r.Since, r.Valid
			ends = t.until(g)
		}
		t.pass(t.ttl / 2)
		t.closedUntil(b, ends, "P1: a renewed hold was given to another")
	}},
	{name: "checks the owner", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		t.pass(t.ttl / 2)
		if r := t.renew1(b, stranger(g)); !errors.Is(r.Err, driver.ErrNotHeld) {
			t.Errorf("P4: a renewal by another owner returned %v, not ErrNotHeld", r.Err)
		}
		t.outlive(t.ttl / 2)
		t.freed(b, g, "P5: a renewal by another owner kept the name closed")
	}},
	{name: "never revives", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		t.outlive(t.ttl)
		t.gone(a, g, "P2: a renewal revived an expired hold")
		t.freed(b, g, "P2: the renewal of an expired hold closed the name again")
		next := t.take(b, t.rival())
		t.gone(a, g, "P1: a renewal revived an expired hold beside the next one")
		t.leaves(a, g, b, next)
	}},
	// A third of the holds were released before, and a third are released by another owner.
	{name: "a batch keeps its order", kinds: modes, run: func(t *trial, a, b driver.Driver) {
		t.renewals(a)
		t.releases(a)
		var grants []driver.Grant
		for i := range 9 {
			g := t.take(a, t.elsewhere())
			if i%3 == 1 {
				t.release(a, g)
			}
			grants = append(grants, g)
		}
		for i, r := range t.renewals(a, grants...) {
			if dead := i%3 == 1; dead && !errors.Is(r.Err, driver.ErrNotHeld) || !dead && r.Err != nil {
				t.Errorf("P2: renewal %d of a batch, of a hold that was released (%t), returned %v", i, dead, r.Err)
			}
			if i%3 == 2 {
				grants[i].Owner = newOwner()
			}
		}
		for i, err := range t.releases(a, grants...) {
			if r := named(t.rival(), grants[i].Name); i%3 == 2 {
				t.refused(b, r, "P4: release by another owner in a batch freed the hold")
			} else if i%3 == 0 && err != nil {
				t.Errorf("P4: release %d of a batch is the holder's and returned %v", i, err)
			} else if i%3 == 0 {
				t.freeNow(b, r, "P4: a release in a batch did not free the name")
			}
		}
	}},
}

var expiryCases = []testCase{
	{name: "a hold lasts as long as it is trusted, and then opens", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		ends, taken := t.until(g), t.now() // on a slow store the hold may have begun only now
		t.pass(t.ttl / 2)
		for t.now() < ends.Add(-t.ttl/16) {
			t.closedUntil(b, ends, "P1: a hold ended before its TTL")
			t.pass(t.ttl / 16)
		}
		t.outliveUntil(taken.Add(t.ttl))
		if t.can(opOperator) && !t.h.Untimed {
			if info := t.inspect(b); !info.Idle() {
				t.Errorf("P9: Inspect shows an expired hold: %+v", info)
			}
		}
		t.freed(b, g, "P5: a dead holder's name did not open after its TTL")
	}},
	{name: "the shortest TTL", time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.request()
		r.TTL = max(t.caps.MinTTL, time.Millisecond)
		g, err := t.try1(a, r)
		if err != nil {
			t.Fatalf("P10: Caps.MinTTL is %v, and Try with a TTL of %v returned: %v", t.caps.MinTTL, r.TTL, err)
		}
		t.outlive(r.TTL)
		t.gone(a, g, "P2: a renewal revived a hold of the shortest TTL")
		t.freeNow(b, t.request(), "P5: a hold of the shortest TTL did not end")
	}},
	{name: "of one of several", kinds: several, time: true, run: func(t *trial, a, b driver.Driver) {
		t.take(a, t.brief(t.hold()))
		r := t.beside()
		r.TTL = max(t.long, 10*t.ttl)
		g := t.take(b, r)
		t.outlive(t.ttl)
		t.freeNow(b, t.hold(), "P5: what a dead holder had did not come back")
		t.refused(a, t.whole(), "P1: the expiry of one of two holds ended the other")
		t.release(b, t.renew(b, g))
		t.freeNow(a, t.whole(), "P5: an expired hold still keeps others out")
	}},
}

// delaysCases are about lock-delays and minimum holds. A store that cannot keep them MUST refuse the request with
// ErrUnsupported.
var delaysCases = []testCase{
	{name: "lock-delay after expiry", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.LockDelay = 2 * t.ttl
		g := t.have(a, r)
		opens := t.until(g).Add(r.LockDelay)
		t.outlive(t.ttl)
		t.gone(a, g, "P2: a renewal revived a hold during its lock-delay")
		t.opensAt(b, g, opens, t.had.Add(r.TTL+r.LockDelay), "P5: a vanished holder's lock-delay was not kept")
	}},
	{name: "no lock-delay after release", kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.LockDelay = t.long
		g := t.have(a, r)
		t.release(a, g)
		t.freed(b, g, "P5: a released name stayed closed for its lock-delay")
	}},
	{name: "minimum hold", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.MinHold = 2 * t.ttl
		g := t.have(a, r)
		t.release(a, g)
		t.gone(a, g, "P2: a renewal revived a released hold during its minimum hold")
		t.opensAt(b, g, t.asked.Add(r.MinHold), t.had.Add(r.MinHold), "P5: a name opened before its minimum hold was over")
	}},
	{name: "minimum hold that is over", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.TTL, r.MinHold = max(t.long, 10*t.ttl), t.ttl
		g := t.have(a, r)
		t.outlive(t.ttl)
		t.release(a, t.renew(a, g))
		t.freed(b, g, "P4: a name released after its minimum hold is not free at once")
	}},
	// A holder takes the name for a job that is due once in a while, and crashes. Nobody may run the job again before
	// the minimum hold is over.
	{name: "minimum hold after expiry", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.MinHold = 3 * t.ttl
		g := t.have(a, r)
		t.outlive(t.ttl)
		if t.kind.mode != driver.Exclusive {
			t.freeNow(b, t.beside(), "P1: the minimum hold of one keeps out another for which there is room")
		}
		t.gone(a, g, "P2: a renewal revived a vanished hold during its minimum hold")
		t.opensAt(b, g, t.asked.Add(r.MinHold), t.had.Add(r.MinHold), "P5: a vanished holder's minimum hold was not kept")
	}},
	// The name stays closed until the later of the two ends, not until their sum.
	{name: "minimum hold and lock-delay after expiry", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.LockDelay, r.MinHold = 2*t.ttl, 2*t.ttl
		g := t.have(a, r)
		opens := t.until(g).Add(r.LockDelay)
		t.outlive(t.ttl)
		t.opensAt(b, g, opens, t.had.Add(r.TTL+r.LockDelay), "P5: a lock-delay was not kept beside a minimum hold")
	}},
	// A client is closed while it has a hold, as if its process had died. Some stores notice that at once.
	{name: "minimum hold of a client that ends", kinds: kinds, time: true, run: func(t *trial, _, b driver.Driver) {
		a := t.h.Open(t.TB)
		ends := sync.OnceFunc(func() { t.close(a) })
		defer ends() // the driver may refuse the request
		r := t.brief(t.hold())
		r.MinHold = 3 * t.ttl
		g := t.have(a, r)
		ends()
		t.aged = true // or the store may notice it late
		t.opensAt(b, g, t.asked.Add(r.MinHold), t.had.Add(r.MinHold), "P5: the minimum hold of a client that was closed was not kept")
	}},
	{name: "lock-delay holds waiters back", need: opQueue, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.LockDelay = t.ttl
		g := t.have(a, r)
		t.outlive(t.ttl)
		t.waitsUntil(b, t.until(g).Add(r.LockDelay))
	}},
	{name: "minimum hold holds waiters back", need: opQueue, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.MinHold = 2 * t.ttl
		t.have(a, r)
		t.outlive(t.ttl)
		t.waitsUntil(b, t.asked.Add(r.MinHold))
	}},
}

// opensAt asserts that the name of a hold that has ended stays closed, as Inspect shows, and opens between two
// instants.
func (t *trial) opensAt(d driver.Driver, g driver.Grant, opens, latest driver.Instant, why string) {
	t.Helper()
	if t.can(opOperator) {
		info, most := t.inspect(d), max(g.LockDelay, g.MinHold)+time.Second // a store may count in seconds
		early := t.now() < opens
		// A store may be late, or its session may last for the lock-delay too.
		if shown := len(info.Holders) != 0; shown && !t.aged || !shown && (info.ClosedFor > most || early && info.ClosedFor <= 0) {
			t.Errorf("P9: Inspect of a name without a holder that is closed for at most %v shows %+v", most, info)
		}
	}
	t.closedUntil(d, opens, why)
	t.pass(max(0, opens.Add(-t.ttl/8).Sub(t.now())))
	t.closedUntil(d, opens, why)
	t.outliveUntil(latest)
	t.freed(d, g, "P5: a name did not open after its lock-delay or minimum hold")
}

// waitsUntil asserts that a waiter is granted a closed name, and not before an instant.
func (t *trial) waitsUntil(d driver.Driver, opens driver.Instant) {
	t.Helper()
	r := t.rival()
	if _, err := t.enqueue(d, r); err == nil && t.now() < opens {
		t.Errorf("P5: a waiter was granted a name that was closed")
	}
	t.outlive(t.ttl)
	t.arrives(d, r, "P5: a waiter was not granted the name after its lock-delay or minimum hold")
}
