package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// fairnessCases are about the order of the queue (P8).
var fairnessCases = []testCase{
	{name: "places are granted in order", need: opQueue | opFair, kinds: modes, run: placesInOrder},
	{name: "a try does not overtake", need: opQueue | opFair, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		t.release(a, g)
		t.refused(a, t.rival(), "P8: a Try overtook a waiter in the queue")
		t.arrives(b, r, "P7: the waiter was not granted the free name")
	}},
	{name: "a reader does not overtake a writer", need: opQueue | opFair | opShared, run: func(t *trial, a, b driver.Driver) {
		g, writer, reader := t.take(a, t.shared()), t.request(), t.shared()
		t.queued(b, writer)
		t.refused(a, t.shared(), "P8: a reader's Try overtook a writer in the queue")
		t.queued(a, reader)
		t.release(a, g)
		w := t.arrives(b, writer, "P8: the writer was not granted the name before the reader behind it")
		t.waits(a, reader, "P1: a reader was granted the name beside a writer")
		t.release(b, w)
		t.arrives(a, reader, "P7: the reader was not granted the free name")
	}},
	{name: "neighbouring readers go together", need: opQueue | opFair | opShared, run: func(t *trial, a, b driver.Driver) {
		g, r1, r2, writer := t.take(a, t.request()), t.shared(), t.shared(), t.request()
		t.queued(b, r1)
		t.queued(a, r2)
		t.queued(b, writer)
		t.release(a, g)
		g1 := t.arrives(b, r1, "P7: the first reader was not granted the free name")
		g2 := t.arrives(a, r2, "P8: two neighbouring readers do not go together")
		t.waits(b, writer, "P1: a writer was granted the name beside two readers")
		t.release(b, g1)
		t.release(a, g2)
		t.arrives(b, writer, "P7: the writer was not granted the free name")
	}},
	{name: "small requests do not starve a big one", need: opQueue | opFair | opSlots, run: func(t *trial, a, b driver.Driver) {
		g1, g2 := t.take(a, t.slot(3, 2)), t.take(a, t.slot(3, 1))
		big, small := t.slot(3, 3), t.slot(3, 1)
		t.queued(b, big)
		t.queued(a, small)
		t.release(a, g2)
		_, queued := t.enqueue(a, small)
		_, tried := t.try1(a, t.slot(3, 1))
		if t.dropped(big) {
			return
		} else if queued == nil || tried == nil {
			t.Fatalf("P8: a small request overtook a big one in a semaphore's queue: %v, %v", queued, tried)
		}
		t.queued(b, big)
		t.release(a, g1)
		t.release(b, t.arrives(b, big, "P8: the big request was not granted the whole semaphore"))
		t.arrives(a, small, "P7: the small request was not granted a free slot")
	}},
	{name: "unfair may overtake but not intrude", need: opQueue, kinds: several, run: func(t *trial, a, b driver.Driver) {
		g, writer, reader, intruder := t.take(a, t.hold()), t.rival(), t.beside(), t.rival()
		t.queued(b, writer)
		reader.Unfair, intruder.Unfair = true, true
		g2, err := t.try1(a, reader)
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P8: an unfair Try returned %v", err)
		}
		t.refused(a, intruder, "P1: an unfair request was granted beside a hold")
		t.release(a, g)
		if err == nil {
			t.release(a, g2)
		}
		t.arrives(b, writer, "P7: the waiter was not granted the free name")
	}},
}

// placesInOrder releases the name into a queue of six, again and again. Each time the next place must be granted, in
// whichever order the waiters confirm their places.
func placesInOrder(t *trial, a, b driver.Driver) {
	clients := []driver.Driver{a, b, t.open()}
	holder, g := a, t.take(a, t.rival())
	requests := make([]driver.Request, 6)
	for i := range requests {
		requests[i] = t.hold()
		if t.kind.mode == driver.Shared && i%2 == 1 { // neighbouring readers would go together
			requests[i] = t.rival()
		}
		t.inPlace(clients[i%3], requests[i], i, requests[:i+1])
	}
	for i := len(requests) - 1; i >= 0; i-- {
		t.inPlace(clients[i%3], requests[i], i, requests)
	}
	if t.dropped(requests...) {
		return
	}
	var waiters []*waiter
	for i, r := range requests {
		waiters = append(waiters, t.waitFor(clients[i%3], r))
	}
	for i, w := range waiters {
		t.release(holder, g)
		if t.outcome(w, t.poll) != nil && t.stoodStill(waiters...) {
			return
		}
		g = t.granted(w, 0, "P8: the next place in the queue was not granted")
		holder = clients[i%3]
	}
}

// stoodStill reports whether a waiter was not heard for so long that the store may have dropped its place.
func (t *trial) stoodStill(waiters ...*waiter) bool {
	for _, w := range waiters {
		if time.Duration(w.gap.Load()) > t.poll*3/2 {
			return true
		}
	}
	return false
}

// inPlace takes or confirms a place, and checks what the store tells of it.
func (t *trial) inPlace(d driver.Driver, r driver.Request, ahead int, queue []driver.Request) {
	t.Helper()
	dropped := t.dropped(queue...)
	_, err := t.enqueue(d, r)
	held, told := errors.AsType[*driver.HeldError](err)
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Enqueue behind a holder: %v", err)
	}
	if dropped || !told || t.dropped(queue...) {
		return
	}
	n := held.Ahead // the holder may count as one
	if n != 0 && n != ahead && n != ahead+1 || held.Queued != 0 && held.Queued != len(queue) {
		t.Errorf("P8: a place is told that %d are ahead of it and %d wait; %d and %d are right", n, held.Queued, ahead, len(queue))
	}
}

// contentionCases are about Grant.Contended. Package holdfast hands a hold over inside its process for longer if
// nobody else is queued in the store (P8).
var contentionCases = []testCase{
	{name: "no other is queued at the grant", need: opQueue | opFair | opFencing | opBlocks, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		t.uncontended(g, "a Try took a free name")
		t.release(a, g)
		g = t.arrives(b, r, "P7: the only waiter was not granted the free name")
		t.uncontended(g, "the only waiter was granted the name")
		t.release(b, g)
		g, err := t.enqueue(a, t.request())
		if err != nil {
			t.Fatalf("P7: Enqueue of a free name: %v", err)
		}
		t.uncontended(g, "Enqueue took a free name")
	}},
	{name: "another is queued at the grant", need: opQueue | opFair | opFencing | opBlocks, run: func(t *trial, a, b driver.Driver) {
		g, first := t.behind(a, b)
		second, c := t.request(), t.open()
		t.queued(c, second)
		w1, w2 := t.waitFor(b, first), t.waitFor(c, second)
		t.release(a, g)
		if t.outcome(w1, t.poll); t.stoodStill(w1, w2) {
			return
		}
		g = t.granted(w1, 0, "P8: the first in the queue was not granted the free name")
		if !g.Contended && !t.dropped(second) {
			t.Errorf("P8: another was queued at the grant, and the grant is not marked as contended: it is kept from the name for too long")
		}
		t.release(b, g)
		g = t.granted(w2, t.poll, "P7: the second in the queue was not granted the free name")
		if !t.stoodStill(w1, w2) {
			t.uncontended(g, "the last waiter was granted the name")
		}
	}},
}

// uncontended asserts that a grant says that nobody is queued.
func (t *trial) uncontended(g driver.Grant, why string) {
	t.Helper()
	if g.Contended {
		t.Errorf("P8: %s, and the grant is marked as contended: holds that others in the process wait for end too soon", why)
	}
}
