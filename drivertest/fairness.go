package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var (
	fair       = needs{can: opQueue, Fair: true}
	fairShared = needs{can: opQueue, Fair: true, Shared: true}
	fairSlots  = needs{can: opQueue, Fair: true, Slots: true}
)

var fairnessCases = []testCase{
	{name: "places are granted in order", need: fair, kinds: modes, run: placesInOrder},
	{name: "a try does not overtake", need: fair, kinds: modes, run: tryDoesNotOvertake},
	{name: "a reader does not overtake a writer", need: fairShared, run: readerBehindWriter},
	{name: "neighbouring readers go together", need: fairShared, run: readersGoTogether},
	{name: "small requests do not starve a big one", need: fairSlots, run: bigRequest},
	{name: "unfair may overtake but not intrude",
		need: queues, kinds: several, run: unfairExcludes},
}

// placesInOrder releases the name into a queue of six, again and again. Each time the next
// place must be granted, in whichever order the waiters confirm their places.
func placesInOrder(t *trial) {
	clients := []driver.Driver{t.open(), t.open(), t.open()}
	holder, g := clients[0], t.take(clients[0], t.rival())
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
	var waiters []*waiting
	for i, r := range requests {
		waiters = append(waiters, t.waitFor(clients[i%3], r))
	}
	for i, w := range waiters {
		t.release(holder, g)
		select {
		case <-w.done:
		case <-time.After(t.poll + t.slack):
			for _, w := range waiters {
				if time.Duration(w.gap.Load()) > t.poll*3/2 {
					return // this machine stood still, and the place was dropped by right
				}
			}
		}
		g = t.granted(w, 0, "P8: the next place in the queue was not granted")
		holder = clients[i%3]
	}
}

// inPlace takes or confirms a place, and checks what the store tells of it.
func (t *trial) inPlace(d driver.Driver, r driver.Request, ahead int, queue []driver.Request) {
	t.Helper()
	dropped := t.dropped(queue...)
	_, err := t.enqueue(d, r)
	dropped = dropped || t.dropped(queue...)
	queued := len(queue)
	var held *driver.HeldError
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Enqueue behind a holder: %v", err)
	} else if errors.As(err, &held) && !dropped && (held.Ahead != 0 && held.Ahead != ahead && held.Ahead != ahead+1 || held.Queued != 0 && held.Queued != queued) { // the holder may count as one
		t.Errorf("P8: a place is told that %d are ahead of it and %d wait; %d and %d are right", held.Ahead, held.Queued, ahead, queued)
	}
}

func tryDoesNotOvertake(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	t.queued(b, r)
	t.release(a, g)
	t.refused(c, t.rival(), "P8: a Try overtook a waiter in the queue")
	t.arrives(b, r, t.poll, "P7: the waiter was not granted the free name")
}

func readerBehindWriter(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g := t.take(a, t.shared())
	writer, reader := t.request(), t.shared()
	t.queued(b, writer)
	t.refused(c, t.shared(), "P8: a reader's Try overtook a writer in the queue")
	t.queued(c, reader)
	t.release(a, g)
	w := t.arrives(b, writer, t.poll,
		"P8: the writer was not granted the name before the reader behind it")
	if _, err := t.enqueue(c, reader); err == nil {
		t.Errorf("P1: a reader was granted the name beside a writer")
	}
	t.release(b, w)
	t.arrives(c, reader, t.poll, "P7: the reader was not granted the free name")
}

func readersGoTogether(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g := t.take(a, t.request())
	r1, r2, writer := t.shared(), t.shared(), t.request()
	t.queued(b, r1)
	t.queued(c, r2)
	t.queued(b, writer)
	t.release(a, g)
	g1 := t.arrives(b, r1, t.poll, "P7: the first reader was not granted the free name")
	g2 := t.arrives(c, r2, t.poll, "P8: two neighbouring readers do not go together")
	if _, err := t.enqueue(b, writer); err == nil {
		t.Errorf("P1: a writer was granted the name beside two readers")
	}
	t.release(b, g1)
	t.release(c, g2)
	t.arrives(b, writer, t.poll, "P7: the writer was not granted the free name")
}

func bigRequest(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g1, g2 := t.take(a, t.slot(3, 2)), t.take(a, t.slot(3, 1))
	big, small := t.slot(3, 3), t.slot(3, 1)
	t.queued(b, big)
	t.queued(c, small)
	t.release(a, g2)
	if _, err := t.enqueue(c, small); err == nil {
		t.Errorf("P8: a small request overtook a big one in a semaphore's queue")
	}
	t.refused(a, t.slot(3, 1), "P8: a Try overtook a big request in a semaphore's queue")
	t.queued(b, big)
	t.release(a, g1)
	g := t.arrives(b, big, t.poll, "P8: the big request was not granted the whole semaphore")
	t.release(b, g)
	t.arrives(c, small, t.poll, "P7: the small request was not granted a free slot")
}

func unfairExcludes(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.hold())
	writer := t.rival()
	t.queued(b, writer)
	reader := t.beside()
	reader.Unfair = true
	g2, err := t.try1(a, reader)
	if err != nil && !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P8: an unfair Try returned %v", err)
	}
	intruder := t.rival()
	intruder.Unfair = true
	t.refused(a, intruder, "P1: an unfair request was granted beside a hold")
	t.release(a, g)
	if err == nil {
		t.release(a, g2)
	}
	t.arrives(b, writer, t.poll, "P7: the waiter was not granted the free name")
}
