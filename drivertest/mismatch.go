package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

var mismatchCases = []testCase{
	{name: "a semaphore where a mutex is held", need: needs{Slots: true}, run: func(t *trial) { t.mismatch(t.request(), t.slot(3, 1)) }},
	{name: "a mutex where a semaphore is held", need: needs{Slots: true}, run: func(t *trial) { t.mismatch(t.slot(3, 1), t.request()) }},
	{name: "a reader where a semaphore is held", need: needs{Slots: true, Shared: true}, run: func(t *trial) { t.mismatch(t.slot(3, 1), t.shared()) }},
	{name: "a semaphore where a reader is", need: needs{Slots: true, Shared: true}, run: func(t *trial) { t.mismatch(t.shared(), t.slot(3, 1)) }},
	{name: "more slots", need: needs{Slots: true}, run: func(t *trial) { t.mismatch(t.slot(3, 1), t.slot(4, 1)) }},
	{name: "fewer slots", need: needs{Slots: true}, run: func(t *trial) { t.mismatch(t.slot(3, 1), t.slot(2, 1)) }},
	{name: "in the queue", need: needs{Slots: true, can: opQueue}, run: mismatchQueue},
	{name: "readers and writers are one kind", need: needs{Shared: true}, run: oneKind},
}

// mismatch holds a name as one kind and asks for it as another.
func (t *trial) mismatch(held, other driver.Request) {
	t.Helper()
	a, b := t.open(), t.open()
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
	switch {
	case err == nil && (!t.h.BlindToKinds || held.Mode != driver.Slot || other.Mode != driver.Slot):
		t.Errorf("P10: a name held as %v of %d slots was granted as %v of %d slots", held.Mode,
			held.Slots, other.Mode, other.Slots)
	case err != nil && !t.h.BlindToKinds && !errors.Is(err, driver.ErrMismatch):
		t.Errorf("P10: asking as %v of %d slots for a name held as %v of %d slots returned %v, not ErrMismatch",
			other.Mode, other.Slots, held.Mode, held.Slots, err)
	}
}

func mismatchQueue(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.slot(2, 2))
	other := t.slot(3, 1)
	_, err := t.enqueue(b, other)
	t.mismatched(err, g.Request, other)
	if err == nil || errors.Is(err, driver.ErrHeld) {
		return
	}
	t.release(a, g)
	t.freeNow(a, t.request(), "P10: a request of another kind took a place in the queue")
}

func oneKind(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.shared())
	t.refused(b, t.request(), "P1: an exclusive hold was granted beside a shared one")
}
