package drivertest

import (
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

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
	{name: "lock-delay holds waiters back", need: queues, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.brief(t.hold())
		r.LockDelay = t.ttl
		g := t.have(a, r)
		t.outlive(t.ttl)
		t.waitsUntil(b, t.until(g).Add(r.LockDelay))
	}},
	{name: "minimum hold holds waiters back", need: queues, kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
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
