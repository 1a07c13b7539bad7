package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// These cases are about how long a hold lasts (P1, P2, P5).

var renewCases = []testCase{
	{name: "extends the hold", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) { t.extends(a, b, t.renew1) }},
	{name: "checks the owner", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		t.pass(t.ttl / 2)
		if r := t.renew1(b, stranger(g)); !errors.Is(r.Err, driver.ErrNotHeld) {
			t.Errorf("P4: a renewal by another owner returned %v, not ErrNotHeld", r.Err)
		}
		t.outlive(t.ttl / 2)
		t.freed(b, g, "P5: a renewal by another owner kept the name closed")
	}},
	{name: "never revives", kinds: modes, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		t.outlive(t.ttl)
		t.gone(a, g, "P2: a renewal revived an expired hold")
		t.freed(b, g, "P2: the renewal of an expired hold closed the name again")
		next := t.take(b, t.rival())
		t.gone(a, g, "P1: a renewal revived an expired hold beside the next one")
		t.leaves(a, g, b, next)
	}},
	// A third of the holds were released before, and a third are released by another owner.
	{name: "a batch keeps its order", kinds: modes, run: func(t *trial, a, b driver.Driver) {
		t.renewals(a)
		t.releases(a)
		var grants []driver.Grant
		for i := range 9 {
			g := t.take(a, t.elsewhere())
			if i%3 == 1 {
				t.release(a, g)
			}
			grants = append(grants, g)
		}
		for i, r := range t.renewals(a, grants...) {
			if dead := i%3 == 1; dead && !errors.Is(r.Err, driver.ErrNotHeld) || !dead && r.Err != nil {
				t.Errorf("P2: renewal %d of a batch, of a hold that was released (%t), returned %v", i, dead, r.Err)
			}
			if i%3 == 2 {
				grants[i].Owner = newOwner()
			}
		}
		for i, err := range t.releases(a, grants...) {
			if r := named(t.rival(), grants[i].Name); i%3 == 2 {
				t.refused(b, r, "P4: release by another owner in a batch freed the hold")
			} else if i%3 == 0 && err != nil {
				t.Errorf("P4: release %d of a batch is the holder's and returned %v", i, err)
			} else if i%3 == 0 {
				t.freeNow(b, r, "P4: a release in a batch did not free the name")
			}
		}
	}},
}

// extends asserts that a way to renew extends holds.
func (t *trial) extends(a, b driver.Driver, renew func(driver.Driver, driver.Grant) driver.Renewal) {
	t.Helper()
	g := t.have(a, t.brief(t.hold()))
	ends := t.until(g)
	for range 4 {
		t.pass(t.ttl / 3)
		r := renew(a, g)
		if r.Err != nil && t.now() >= ends {
			return // this machine stood still until the hold had expired
		}
		if r.Err != nil {
			t.Fatalf("P2: a hold in time for its renewal was not renewed: %v", r.Err)
		}
		g.Since, g.Valid = r.Since, r.Valid
		ends = t.until(g)
	}
	t.pass(t.ttl / 2)
	t.closedUntil(b, ends, "P1: a renewed hold was given to another")
}

var expiryCases = []testCase{
	{name: "a hold lasts as long as it is trusted, and then opens", kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.brief(t.hold()))
		ends, taken := t.until(g), t.now() // on a slow store the hold may have begun only now
		t.pass(t.ttl / 2)
		for t.now() < ends.Add(-t.ttl/16) {
			t.closedUntil(b, ends, "P1: a hold ended before its TTL")
			t.pass(t.ttl / 16)
		}
		t.outliveUntil(taken.Add(t.ttl))
		if t.can(opOperator) && !t.h.Untimed {
			if info := t.inspect(b); !info.Idle() {
				t.Errorf("P9: Inspect shows an expired hold: %+v", info)
			}
		}
		t.freed(b, g, "P5: a dead holder's name did not open after its TTL")
	}},
	{name: "the shortest TTL", time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.request()
		r.TTL = max(t.caps.MinTTL, time.Millisecond)
		g, err := t.try1(a, r)
		if err != nil {
			t.Fatalf("P10: Caps.MinTTL is %v, and Try with a TTL of %v returned: %v", t.caps.MinTTL, r.TTL, err)
		}
		t.outlive(r.TTL)
		t.gone(a, g, "P2: a renewal revived a hold of the shortest TTL")
		t.freeNow(b, t.request(), "P5: a hold of the shortest TTL did not end")
	}},
	{name: "of one of several", kinds: several, time: true, run: func(t *trial, a, b driver.Driver) {
		t.take(a, t.brief(t.hold()))
		r := t.beside()
		r.TTL = max(t.long, 10*t.ttl)
		g := t.take(b, r)
		t.outlive(t.ttl)
		t.freeNow(b, t.hold(), "P5: what a dead holder had did not come back")
		t.refused(a, t.whole(), "P1: the expiry of one of two holds ended the other")
		t.release(b, t.renew(b, g))
		t.freeNow(a, t.whole(), "P5: an expired hold still keeps others out")
	}},
}
