package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// delaysCases are about lock-delays and minimum holds. A store that cannot keep them MUST
// refuse the request with ErrUnsupported.
var delaysCases = []testCase{
	{name: "lock-delay after expiry", kinds: kinds, time: true, run: lockDelayAfterExpiry},
	{name: "no lock-delay after release", kinds: kinds, run: noLockDelayAfterRelease},
	{name: "lock-delay holds waiters back", need: queues, kinds: modes, time: true, run: lockDelayQueue},
	{name: "minimum hold", kinds: kinds, time: true, run: minHold},
	{name: "minimum hold that is over", kinds: modes, time: true, run: minHoldOver},
	{name: "a hold that is undone ignores the minimum hold", kinds: kinds, time: true, run: undoIgnoresMinHold},
	{name: "minimum hold after expiry", kinds: kinds, time: true, run: minHoldAfterExpiry},
	{name: "minimum hold that was over at expiry", kinds: modes, time: true, run: minHoldOverAtExpiry},
	{name: "minimum hold and lock-delay after expiry", kinds: modes, time: true, run: minHoldAndDelay},
	{name: "minimum hold of a client that ends", kinds: kinds, time: true, run: minHoldOfEndedClient},
	{name: "minimum hold holds waiters back", need: queues, kinds: modes, time: true, run: minHoldQueue},
	{name: "a dead winner has no minimum hold", need: queues, kinds: modes, run: minHoldOfDeadWinner},
}

func lockDelayAfterExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.LockDelay = 2 * t.ttl
	g := t.have(a, r)
	opens := t.until(g).Add(r.LockDelay)
	t.outlive(t.ttl)
	t.closedFor(b, opens, r.LockDelay)
	t.gone(a, g, "P2: a renewal revived a hold during its lock-delay")
	t.staysClosed(b, opens, "P5: a vanished holder's lock-delay was not kept")
	t.outliveUntil(t.had.Add(r.TTL + r.LockDelay))
	t.freed(b, g, "P5: a dead holder's name did not open after TTL and lock-delay")
}

func noLockDelayAfterRelease(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.LockDelay = t.long
	g := t.have(a, r)
	t.release(a, g)
	t.freed(b, g, "P5: a released name stayed closed for its lock-delay")
}

func lockDelayQueue(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.LockDelay = t.ttl
	opens := t.until(t.have(a, r)).Add(r.LockDelay)
	t.outlive(t.ttl)
	waiter := t.rival()
	if _, err := t.enqueue(b, waiter); err == nil && t.now() < opens {
		t.Errorf("P5: a waiter was granted the name during a lock-delay")
	}
	t.outlive(t.ttl)
	t.arrives(b, waiter, t.poll, "P5: a waiter was not granted the name after the lock-delay")
}

func minHold(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.MinHold = 2 * t.ttl
	g := t.have(a, r)
	opens := t.asked.Add(r.MinHold)
	t.release(a, g)
	t.closedFor(b, opens, r.MinHold)
	t.gone(a, g, "P2: a renewal revived a released hold during its minimum hold")
	t.staysClosed(b, opens, "P5: a name released before its minimum hold opened too soon")
	t.outliveUntil(t.had.Add(r.MinHold))
	t.freed(b, g, "P5: a name did not open after its minimum hold")
}

func minHoldOver(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.TTL = max(t.long, 10*t.ttl)
	r.MinHold = t.ttl
	g := t.have(a, r)
	t.outlive(t.ttl)
	t.release(a, t.renew(a, g))
	t.freed(b, g, "P4: a name released after its minimum hold is not free at once")
}

func undoIgnoresMinHold(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.MinHold = t.long
	g := t.have(a, r)
	g.MinHold = 0
	t.release(a, g)
	t.freed(b, g, "P6: a hold that was undone kept the name closed for its minimum hold")
}

// minHoldAfterExpiry: a holder takes the name for a job that is due once in a while, and
// crashes. No other may run the job again before the minimum hold is over.
func minHoldAfterExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.MinHold = 3 * t.ttl
	g := t.have(a, r)
	opens := t.asked.Add(r.MinHold)
	t.outlive(t.ttl)
	if t.kind.mode != driver.Exclusive {
		t.freeNow(b, t.beside(), "P1: the minimum hold of one keeps out another for which there is room")
	}
	t.closedFor(b, opens, r.MinHold)
	t.gone(a, g, "P2: a renewal revived a vanished hold during its minimum hold")
	t.staysClosed(b, opens, "P5: a vanished holder's name opened before its minimum hold was over")
	t.outliveUntil(t.had.Add(r.MinHold))
	t.freed(b, g, "P5: a vanished holder's name did not open after its minimum hold")
}

func minHoldOverAtExpiry(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.MinHold = t.ttl / 2
	g := t.have(a, r)
	t.pass(t.ttl / 4)
	t.renew1(a, g) // may fail: this machine may have stood still until the hold expired
	t.outlive(t.ttl)
	t.freed(b, g, "P5: a vanished holder's name stayed closed after TTL and minimum hold")
}

// minHoldAndDelay: the name stays closed until the later of the two ends, not until their sum.
func minHoldAndDelay(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.LockDelay, r.MinHold = 2*t.ttl, 2*t.ttl
	g := t.have(a, r)
	opens := t.until(g).Add(r.LockDelay)
	t.outlive(t.ttl)
	t.staysClosed(b, opens, "P5: a vanished holder's lock-delay was not kept beside its minimum hold")
	t.outliveUntil(t.had.Add(r.TTL + r.LockDelay))
	t.freed(b, g, "P5: a vanished holder's name did not open after lock-delay and minimum hold")
}

// minHoldOfEndedClient: a client is closed while it has a hold, as if its process had died.
// Some stores notice that at once; the minimum hold MUST last all the same.
func minHoldOfEndedClient(t *trial) {
	a, b := t.h.Open(t.TB), t.open()
	defer func() { // the driver may refuse the request
		if a != nil {
			a.Close()
		}
	}()
	r := t.briefHold()
	r.MinHold = 3 * t.ttl
	g := t.have(a, r)
	opens := t.asked.Add(r.MinHold)
	if err := a.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	a = nil
	t.staysClosed(b, opens, "P5: the name of a client that was closed opened before its hold's minimum was over")
	t.outliveUntil(t.had.Add(r.MinHold))
	t.freed(b, g, "P5: the name of a client that was closed did not open after its hold's minimum")
}

func minHoldQueue(t *trial) {
	a, b := t.open(), t.open()
	r := t.briefHold()
	r.MinHold = 2 * t.ttl
	t.have(a, r)
	opens := t.asked.Add(r.MinHold)
	t.outlive(t.ttl)
	waiter := t.rival()
	if _, err := t.enqueue(b, waiter); err == nil && t.now() < opens {
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
	r := t.rival()
	r.TTL = max(r.TTL, 8*t.poll+2*t.slack)
	g := t.take(a, r)
	dead, live := t.hold(), t.rival()
	dead.TTL, dead.MinHold = r.TTL, time.Hour
	if _, err := t.enqueue(a, dead); errors.Is(err, driver.ErrUnsupported) {
		return
	}
	t.queued(b, live)
	w := t.waitFor(b, live)
	t.release(a, g)
	t.granted(w, 3*t.poll+t.caps.Guarantees.Lateness,
		"P7: a waiter that never confirms keeps the name closed for its minimum hold")
}

// staysClosed asserts that the name is not granted before an instant, now and shortly before it.
func (t *trial) staysClosed(d driver.Driver, until driver.Instant, why string) {
	t.Helper()
	t.closedUntil(d, until, why)
	t.pass(max(0, until.Add(-t.ttl/8).Sub(t.now())))
	t.closedUntil(d, until, why)
}

// outliveUntil is outlive until an instant at which the store must have opened the name.
func (t *trial) outliveUntil(at driver.Instant) {
	t.Helper()
	t.outlive(max(0, at.Sub(t.now())))
}

// closedFor asserts that Inspect shows a name as closed until an instant, for at most so long.
func (t *trial) closedFor(d driver.Driver, opens driver.Instant, most time.Duration) {
	t.Helper()
	if !t.can.has(opOperator) {
		return
	}
	info := t.inspect(d)
	early := t.now() < opens
	if len(info.Holders) != 0 && t.aged { // the store is late, or its session lasts for the lock-delay too
		return
	}
	if len(info.Holders) != 0 || info.ClosedFor > most+time.Second || early && info.ClosedFor <= 0 { // a store may count in seconds
		t.Errorf("P9: Inspect of a name without a holder that is closed for at most %v shows %+v", most, info)
	}
}
