package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

// readWriteCases are about Request.RW, which tells a half of a read-write lock from a
// mutex. In Holdfast's own layouts the two are one lock, so a driver MUST ignore it
// there. Layouts of other programs may keep the two apart (Harness.ReadWriteApart).
var readWriteCases = []testCase{
	{name: "a mutex and a write lock", run: func(t *trial) { t.oneLock(t.request(), readWrite(t.request())) }},
	{name: "a write lock and a mutex", run: func(t *trial) { t.oneLock(readWrite(t.request()), t.request()) }},
	{name: "a mutex and a read lock", need: needs{Shared: true}, run: func(t *trial) { t.oneLock(t.request(), readWrite(t.shared())) }},
	{name: "a read lock and a mutex", need: needs{Shared: true}, run: func(t *trial) { t.oneLock(readWrite(t.shared()), t.request()) }},
	{name: "a write lock waits behind a mutex", need: queues, run: writeLockWaits},
}

// readWrite makes a request one of a read-write lock.
func readWrite(r driver.Request) driver.Request {
	r.RW = true
	return r
}

// oneLock holds a name as one lock and asks for it as the other.
func (t *trial) oneLock(held, other driver.Request) {
	t.Helper()
	a, b := t.open(), t.open()
	g := t.take(a, held)
	second, err := t.try1(b, other)
	switch {
	case err != nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrMismatch):
		t.Errorf("P1: asking for a name that is held as the other lock returned %v, not ErrHeld", err)
	case t.h.ReadWriteApart:
	case err == nil:
		t.Errorf("P1: %s was granted beside %s of the same name", lockOf(other), lockOf(held))
	case errors.Is(err, driver.ErrMismatch):
		t.Errorf("P10: %s and %s of one name are one lock, but the request returned %v, not ErrHeld",
			lockOf(other), lockOf(held), err)
	}
	if err == nil {
		t.release(b, second)
	}
	g = t.renew(a, g)
	t.release(a, g)
	t.freeNow(b, other, "P4: the release of "+lockOf(held)+" did not free the name for "+lockOf(other))
}

// lockOf says what a request asks for.
func lockOf(r driver.Request) string {
	switch {
	case r.Mode == driver.Shared:
		return "a read lock"
	case r.RW:
		return "a write lock"
	}
	return "a mutex"
}

func writeLockWaits(t *trial) {
	if t.h.ReadWriteApart {
		return
	}
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	writer := readWrite(t.request())
	t.queued(b, writer)
	t.release(a, g)
	g = t.arrives(b, writer, t.poll, "P7: a write lock that waited behind a mutex was not granted")
	t.refused(a, t.request(), "P1: a mutex was granted beside a write lock that had waited")
	t.release(b, g)
}
