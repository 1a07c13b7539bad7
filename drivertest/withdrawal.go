package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

// withdrawalCases are about requests whose outcome is not known. Package holdfast withdraws
// them: it calls Release with token 0. From then on such a request MUST NOT hold the name,
// wait for it, or take it later (P6).
var withdrawalCases = []testCase{
	{name: "of a hold", kinds: kinds, run: withdrawHold},
	{name: "of nothing", kinds: modes, run: withdrawNothing},
	{name: "before the request", kinds: modes, run: withdrawBefore},
	{name: "before the queued request", need: queues, kinds: modes, run: withdrawBeforeEnqueue},
	{name: "before a stray request", need: queues, kinds: modes, run: releaseBeforeStray},
	{name: "of a place", need: queues, kinds: modes, run: withdrawPlace},
	{name: "of a hold that was handed over", need: queues, kinds: modes, run: withdrawHandedOver},
	{name: "ignores the minimum hold", kinds: kinds, time: true, run: withdrawIgnoresMinHold},
}

// withdraw withdraws a request.
func (t *trial) withdraw(d driver.Driver, r driver.Request) {
	t.Helper()
	r.MinHold = 0
	if err := t.release1(d, driver.Grant{Request: r}); err != nil && !driver.Gone(err) {
		t.Fatalf("P6: withdrawing a request failed: %v", err)
	}
}

func withdrawHold(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	for range 2 {
		t.withdraw(a, g.Request)
		t.freed(b, g, "P6: a withdrawn request still holds the name")
	}
}

func withdrawNothing(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	t.withdraw(b, t.hold())
	t.renew(a, g)
	t.refused(b, t.rival(), "P4: withdrawing another's request freed the hold")
}

// releaseBeforeStray: a request gets no answer, a second one of the same owner is granted and
// released, and the first arrives after that.
func releaseBeforeStray(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	g := t.take(a, r)
	g.Stray = true
	if err := t.release1(a, g); err != nil {
		t.Fatalf("P4: releasing a hold failed: %v", err)
	}
	t.track(a, r)
	if _, err := a.Try(t.ctx, r); err == nil {
		t.Errorf("P6: a stray request took effect after the release")
	}
	if _, err := a.(driver.Queuer).Enqueue(t.ctx, r); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("P6: a stray request took a place after the release: %v", err)
	}
	t.freeNow(b, t.rival(), "P6: a stray request holds the name after the release")
}

// withdrawBefore: a request arrives after its withdrawal.
func withdrawBefore(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	t.track(a, r)
	t.withdraw(a, r)
	if _, err := a.Try(t.ctx, r); err == nil {
		t.Errorf("P6: a request took effect after it was withdrawn")
	}
	t.freeNow(b, t.rival(), "P6: a request that arrived after its withdrawal holds the name")
}

func withdrawBeforeEnqueue(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(b, t.rival())
	r := t.hold()
	t.withdraw(a, r)
	if _, err := t.enqueue(a, r); err == nil {
		t.Errorf("P6: a withdrawn request was granted a held name")
	}
	t.release(b, g)
	if _, err := t.enqueue(a, r); err == nil {
		t.Errorf("P6: a request took effect after it was withdrawn")
	}
	t.freeNow(b, t.rival(),
		"P6: a request that arrived after its withdrawal holds the name or waits for it")
}

func withdrawPlace(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	gone, stays := t.hold(), t.hold()
	t.queued(b, gone)
	t.queued(b, stays)
	t.withdraw(b, gone)
	t.release(a, g)
	// The next waiter is granted the name, as if the withdrawn place had never been there.
	next := t.arrives(b, stays, t.poll, "P6: a withdrawn place delays the next waiter")
	if _, err := t.enqueue(b, gone); err == nil {
		t.Errorf("P6: a withdrawn place was granted")
	}
	t.release(b, next)
	t.freeNow(a, t.rival(), "P6: a withdrawn place still waits for the name")
}

func withdrawHandedOver(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	t.queued(b, r)
	t.release(a, g) // hands the name over to the waiter
	t.withdraw(b, r)
	t.freeNow(a, t.rival(), "P6: a waiter that withdrew after the hand-off still holds the name")
}

func withdrawIgnoresMinHold(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.MinHold = t.long
	g := t.have(a, r)
	t.withdraw(a, g.Request)
	t.freed(b, g, "P6: undoing a hold kept the name closed for its minimum hold")
}

// enqueue calls Enqueue once, and withdraws the request when the case ends.
func (t *trial) enqueue(d driver.Driver, r driver.Request) (driver.Grant, error) {
	t.Helper()
	t.track(d, r)
	q, ok := driver.As[driver.Queuer](d)
	if !ok {
		t.Fatalf("P10: one client is a Queuer, and another is not")
	}
	sent := t.clock.Now()
	g, err := q.Enqueue(t.ctx, r)
	if errors.Is(err, driver.ErrHeld) {
		t.heard.set(r.Owner, sent)
	} else if err == nil {
		t.sane(g, r)
	}
	return g, err
}
