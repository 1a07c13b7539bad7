package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

var releaseCases = []testCase{
	{name: "by another owner", kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		t.releaseGone(b, stranger(g))
		t.refused(b, t.rival(), "P4: release by another owner freed the hold")
		t.renew(a, g)
	}},
	{name: "repeated", kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		t.release(a, g)
		t.gone(a, g, "P2: a renewal revived a released hold")
		t.releaseGone(a, g)
		t.freed(b, g, "P4: the renewal or release of a released hold closed the name again")
		t.leaves(a, g, b, t.take(b, t.rival()))
	}},
	// A hold belongs to its owner, not to a connection: another client may release it, unless the grant has a Handle.
	{name: "from another client of the owner", kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		if g.Handle != nil {
			t.release(a, g)
		} else {
			t.release(b, g)
		}
		t.freed(b, g, "P4: the owner's release did not free the name")
	}},
}

// withdrawalCases are about requests whose outcome is not known. Package holdfast withdraws them: it calls Release
// with token 0. From then on such a request MUST NOT hold the name, wait for it, or take it later (P6).
var withdrawalCases = []testCase{
	{name: "of a hold", kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		for range 2 {
			t.withdraw(a, g.Request)
			t.freed(b, g, "P6: a withdrawn request still holds the name")
		}
	}},
	{name: "before the request", kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.take(b, t.rival()), t.hold()
		t.withdraw(a, r)
		t.renew(b, g)
		t.refused(a, t.rival(), "P4: withdrawing another's request freed the hold")
		if t.can(opQueue) {
			t.waits(a, r, "P6: a withdrawn request was granted a held name")
		}
		t.release(b, g)
		t.refusesLate(a, r)
		t.freeNow(b, t.rival(), "P6: a request that arrived after its withdrawal holds the name or waits for it")
	}},
	// A request gets no answer, a second one of the same owner is granted and released, and then the first arrives.
	{name: "before a stray request", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.hold())
		g.Stray = true
		t.release(a, g)
		t.refusesLate(a, g.Request)
		t.freeNow(b, t.rival(), "P6: a stray request holds the name after the release")
	}},
	{name: "of a place", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, gone := t.behind(a, b)
		stays := t.hold()
		t.queued(b, stays)
		t.withdraw(b, gone)
		t.release(a, g)
		next := t.arrives(b, stays, "P6: a withdrawn place delays the next waiter")
		t.waits(b, gone, "P6: a withdrawn place was granted")
		t.release(b, next)
		t.freeNow(a, t.rival(), "P6: a withdrawn place still waits for the name")
	}},
	{name: "of a hold that was handed over", need: opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		t.release(a, g) // hands the name over to the waiter
		t.withdraw(b, r)
		t.freeNow(a, t.rival(), "P6: a waiter that withdrew after the hand-off still holds the name")
	}},
	{name: "ignores the minimum hold", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		for _, token := range []bool{true, false} {
			r := t.hold()
			r.MinHold = t.long
			g := t.have(a, r)
			g.MinHold = 0
			if token {
				t.release(a, g) // the acquire is undone
			} else {
				t.withdraw(a, g.Request)
			}
			t.freed(b, g, "P6: undoing a hold kept the name closed for its minimum hold")
		}
	}},
}

// refusesLate asserts that no request of an owner takes effect any more.
func (t *trial) refusesLate(d driver.Driver, r driver.Request) {
	t.Helper()
	t.track(d, r)
	if _, err := d.Try(t.ctx, r); err == nil {
		t.Errorf("P6: a request took effect after it was withdrawn")
	}
	if !t.can(opQueue) {
		return
	}
	if _, err := t.enqueue(d, r); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("P6: a request took a place, or the name, after it was withdrawn: %v", err)
	}
}
