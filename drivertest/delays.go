package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// delaysCases are about lock-delays and minimum holds. A store that cannot keep them MUST
// refuse the request with ErrUnsupported.
var delaysCases = []testCase{
	{name: "lock-delay after expiry", time: true, run: lockDelayAfterExpiry},
	{name: "no lock-delay after release", run: noLockDelayAfterRelease},
	{name: "lock-delay does not revive", time: true, run: lockDelayNoRevival},
	{name: "lock-delay holds waiters back", need: queues, time: true, run: lockDelayQueue},
	{name: "minimum hold", time: true, run: minHold},
	{name: "minimum hold that is over", time: true, run: minHoldOver},
	{name: "a hold that is undone ignores the minimum hold", run: undoIgnoresMinHold},
	{name: "minimum hold after expiry", time: true, run: minHoldAfterExpiry},
	{name: "minimum hold that was over at expiry", time: true, run: minHoldOverAtExpiry},
	{name: "minimum hold and lock-delay after expiry", time: true, run: minHoldAndDelay},
	{name: "minimum hold of a client that ends", time: true, run: minHoldOfEndedClient},
	{name: "minimum hold of a reader that vanishes", need: driver.Caps{Shared: true}, time: true,
		run: minHoldOfReader},
	{name: "minimum hold of permits that vanish", need: driver.Caps{Slots: true}, time: true,
		run: minHoldOfPermits},
	{name: "minimum hold holds waiters back", need: queues, time: true, run: minHoldQueue},
	{name: "a dead winner has no minimum hold", need: queues, run: minHoldOfDeadWinner},
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
		t.freeNow(b, t.request(), "P6: a hold that was undone kept the name closed for its minimum hold")
	}
}

// minHoldAfterExpiry: a holder takes the name for a job that is due once in a while, and
// crashes. No other may run the job again before the minimum hold is over.
func minHoldAfterExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.MinHold = 3 * t.ttl
	start := t.now()
	g, ok := t.takesDelays(a, r)
	if !ok {
		return
	}
	t.outlive(t.ttl)
	t.closedUntil(b, start.Add(r.MinHold),
		"P5: a vanished holder's name opened before its minimum hold was over")
	t.gone(a, g, "P2: a renewal revived a vanished hold during its minimum hold")
	t.outlive(2 * t.ttl)
	t.freeNow(b, t.request(), "P5: a vanished holder's name did not open after its minimum hold")
}

func minHoldOverAtExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.MinHold = t.ttl / 2
	if g, ok := t.takesDelays(a, r); ok {
		t.pass(t.ttl / 4)
		t.renew1(a, g) // may fail: this machine may have stood still until the hold expired
		t.outlive(t.ttl)
		t.freeNow(b, t.request(), "P5: a vanished holder's name stayed closed after TTL and minimum hold")
	}
}

// minHoldAndDelay: the name stays closed until the later of the two ends, not until their sum.
func minHoldAndDelay(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.LockDelay, r.MinHold = 2*t.ttl, 2*t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(2 * t.ttl)
	t.closedUntil(b, start.Add(3*t.ttl),
		"P5: a vanished holder's lock-delay was not kept beside its minimum hold")
	t.outlive(t.ttl)
	t.freeNow(b, t.request(),
		"P5: a vanished holder's name did not open after lock-delay and minimum hold")
}

// minHoldOfEndedClient: a client is closed while it has a hold, as if its process had died.
// Some stores notice that at once; the minimum hold MUST last all the same.
func minHoldOfEndedClient(t *trial) {
	a, b := t.h.Open(t.TB), t.open()
	r := t.brief()
	r.MinHold = 3 * t.ttl
	start := t.now()
	_, ok := t.takesDelays(a, r)
	if err := a.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	if !ok {
		return
	}
	t.closedUntil(b, start.Add(r.MinHold),
		"P5: the name of a client that was closed opened before its hold's minimum was over")
	t.outlive(3 * t.ttl)
	t.freeNow(b, t.request(),
		"P5: the name of a client that was closed did not open after its hold's minimum")
}

func minHoldOfReader(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.Mode, r.MinHold = driver.Shared, 3*t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(t.ttl)
	t.freeNow(b, t.shared(), "P1: the minimum hold of a reader kept another reader out")
	t.closedUntil(b, start.Add(r.MinHold),
		"P5: a writer was let in during the minimum hold of a reader that had vanished")
	t.outlive(2 * t.ttl)
	t.freeNow(b, t.request(), "P5: a vanished reader's name did not open after its minimum hold")
}

func minHoldOfPermits(t *trial) {
	a, b := t.open(), t.open()
	r := t.slot(3, 2)
	r.TTL, r.MinHold = t.ttl, 3*t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(t.ttl)
	t.freeNow(b, t.slot(3, 1), "P1: the minimum hold of two permits kept the third out")
	g, err := t.try1(b, t.slot(3, 2))
	if now := t.now(); err == nil && now < start.Add(r.MinHold) {
		t.Errorf("P5: permits were given to another during the minimum hold of a holder that had vanished")
	}
	if err == nil {
		t.release(b, g)
	}
	t.outlive(2 * t.ttl)
	t.freeNow(b, t.slot(3, 3), "P5: a vanished holder's permits did not come back after its minimum hold")
}

func minHoldQueue(t *trial) {
	a, b := t.open(), t.open()
	r := t.brief()
	r.MinHold = 2 * t.ttl
	start := t.now()
	if _, ok := t.takesDelays(a, r); !ok {
		return
	}
	t.outlive(t.ttl)
	waiter := t.request()
	if _, err := t.enqueue(b, waiter); err == nil && t.now() < start.Add(r.MinHold) {
		t.Errorf("P5: a waiter was granted the name during the minimum hold of a holder that had vanished")
	}
	t.outlive(t.ttl)
	t.arrives(b, waiter, t.poll,
		"P5: a waiter was not granted the name after the minimum hold of a holder that had vanished")
}

// minHoldOfDeadWinner: a waiter dies, and then the name is handed to it. It has begun no
// work, so the waiters behind it do not wait for its minimum hold.
func minHoldOfDeadWinner(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.TTL = max(r.TTL, 8*t.poll+2*t.slack)
	g := t.take(a, r)
	dead, live := t.request(), t.request()
	dead.TTL, dead.MinHold = r.TTL, time.Hour
	t.track(a, dead)
	if _, err := t.enqueue(a, dead); errors.Is(err, driver.ErrUnsupported) {
		return
	}
	t.queued(b, live)
	w := t.waitFor(b, live)
	t.release(a, g)
	t.granted(w, 3*t.poll+t.caps.Guarantees.Lateness,
		"P7: a waiter that never confirms keeps the name closed for its minimum hold")
}

// takesDelays takes the hold. If the store cannot keep lock-delays and minimum holds, it
// asserts that the driver refuses the request and leaves nothing behind.
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
