package drivertest

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// handsOver is a fair store with a queue that reserves tokens for local hand-over.
var handsOver = needs{can: opQueue, Fair: true, Fencing: true, TokenBlock: 2}

// contentionCases are about Grant.Contended. Package holdfast hands a hold over inside
// its process for longer if no other waiter is queued in the store (P8).
var contentionCases = []testCase{
	{name: "no other is queued at the grant", need: handsOver, run: nobodyQueued},
	{name: "another is queued at the grant", need: handsOver, run: anotherQueued},
}

// uncontended asserts that a grant says that nobody is queued.
func (t *trial) uncontended(g driver.Grant, why string) {
	t.Helper()
	if g.Contended {
		t.Errorf("P8: %s, and the grant is marked as contended: holds that others in the process wait for end too soon", why)
	}
}

func nobodyQueued(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.uncontended(g, "a Try took a free name")
	r := t.request()
	t.queued(b, r)
	t.release(a, g)
	g = t.arrives(b, r, t.poll, "P7: the only waiter was not granted the free name")
	t.uncontended(g, "the only waiter was granted the name")
	t.release(b, g)
	g, err := t.enqueue(a, t.request())
	if err != nil {
		t.Fatalf("P7: Enqueue of a free name: %v", err)
	}
	t.uncontended(g, "Enqueue took a free name")
}

// anotherQueued: A holds the lock; B and C wait in this order. B is granted the name
// while C waits, and C while nobody does.
func anotherQueued(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g := t.take(a, t.request())
	rb, rc := t.request(), t.request()
	t.queued(b, rb)
	t.queued(c, rc)
	wb, wc := t.waitFor(b, rb), t.waitFor(c, rc)
	t.release(a, g)
	select {
	case <-wb.done:
	case <-time.After(t.poll + t.slack):
	}
	stoodStill := func() bool { // for so long that the store may have dropped a place
		return max(wb.gap.Load(), wc.gap.Load()) > int64(t.poll*3/2)
	}
	if stoodStill() {
		return
	}
	g = t.granted(wb, 0, "P8: the first in the queue was not granted the free name")
	if !g.Contended && !t.heard.over(rc, t.poll, t.clock.Now()) {
		t.Errorf("P8: another was queued at the grant, and the grant is not marked as contended: it is kept from the name for too long")
	}
	t.release(b, g)
	g = t.granted(wc, t.poll, "P7: the second in the queue was not granted the free name")
	if !stoodStill() {
		t.uncontended(g, "the last waiter was granted the name")
	}
}
