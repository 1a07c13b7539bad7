package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

// A store that cannot keep lock-delays or minimum holds refuses them with
// ErrUnsupported.
var delaysCases = []testCase{
	{name: "lock-delay after expiry", time: true, run: lockDelayAfterExpiry},
	{name: "no lock-delay after release", run: noLockDelayAfterRelease},
	{name: "lock-delay does not revive", time: true, run: lockDelayNoRevival},
	{name: "lock-delay holds waiters back", need: queues, time: true, run: lockDelayQueue},
	{name: "minimum hold", time: true, run: minHold},
	{name: "minimum hold that is over", time: true, run: minHoldOver},
	{name: "undo ignores the minimum hold", run: undoIgnoresMinHold},
}

func lockDelayAfterExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.LockDelay = 2 * t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(t.ttl)
	t.closedUntil(b, start.Add(r.TTL+r.LockDelay), "P5: a vanished holder's lock-delay was not kept")
	t.outlive(2 * t.ttl)
	t.freeNow(b, t.request(), "P5: a dead holder's name did not open after TTL and lock-delay")
}

func noLockDelayAfterRelease(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.LockDelay = t.long
	if g, ok := t.takesDelays(a, r); ok {
		t.release(a, g)
		t.freeNow(b, t.request(), "P5: a released name stayed closed for its lock-delay")
	}
}

func lockDelayNoRevival(t *trial) {
	a := t.open()
	r := t.brief()
	r.LockDelay = 2 * t.ttl
	if g, ok := t.takesDelays(a, r); ok {
		t.outlive(t.ttl)
		t.gone(a, g, "P2: a renewal revived a hold during its lock-delay")
	}
}

func lockDelayQueue(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.LockDelay = t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(t.ttl)
	waiter := t.request()
	if _, err := t.enqueue(b, waiter); err == nil && t.now() < start.Add(2*t.ttl) {
		t.Errorf("P5: a waiter was granted the name during a lock-delay")
	}
	t.outlive(t.ttl)
	t.arrives(b, waiter, t.poll, "P5: a waiter was not granted the name after the lock-delay")
}

func minHold(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.MinHold = 2 * t.ttl
	start := t.now()
	g, ok := t.takesDelays(a, r)
	if !ok {
		return
	}
	t.release(a, g)
	t.closedUntil(b, start.Add(r.MinHold), "P5: a name released before its minimum hold opened too soon")
	t.gone(a, g, "P2: a renewal revived a released hold during its minimum hold")
	t.outlive(2 * t.ttl)
	t.freeNow(b, t.request(), "P5: a name did not open after its minimum hold")
}

func minHoldOver(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.TTL = max(t.long, 10*t.ttl)
	r.MinHold = t.ttl
	if g, ok := t.takesDelays(a, r); ok {
		t.outlive(t.ttl)
		t.release(a, t.renew(a, g))
		t.freeNow(b, t.request(), "P4: a name released after its minimum hold is not free at once")
	}
}

func undoIgnoresMinHold(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.MinHold = t.long
	if g, ok := t.takesDelays(a, r); ok {
		g.MinHold = 0
		t.release(a, g)
		t.freeNow(b, t.request(), "P6: an undone hold kept the name closed for its minimum hold")
	}
}

// takesDelays takes the hold, or asserts that a store that cannot keep
// lock-delays and minimum holds says so and does nothing.
func (t *trial) takesDelays(d driver.Driver, r driver.Request) (driver.Grant, bool) {
	t.Helper()
	g, err := t.try1(d, r)
	if err == nil {
		return g, true
	}
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Fatalf("P7: Try of a free name with a lock-delay or minimum hold: %v", err)
	}
	t.freeNow(d, t.request(), "P6: a request that the store refused left something behind")
	return g, false
}
