package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

var renewCases = []testCase{
	{name: "extends the hold", kinds: kinds, time: true, run: renewExtends},
	{name: "checks the owner", kinds: modes, time: true, run: renewChecksOwner},
	{name: "never revives", kinds: modes, time: true, run: renewNeverRevives},
	{name: "after expiry does not touch the next hold", kinds: modes, time: true, run: renewAfterNextHolder},
	{name: "after release", kinds: kinds, run: renewAfterRelease},
	{name: "a batch keeps its order", kinds: modes, run: renewBatch},
	{name: "of nothing", run: renewNothing},
}

func renewExtends(t *trial) { t.extends(t.renew1) }

// extends asserts that a way to renew extends holds.
func (t *trial) extends(renew func(driver.Driver, driver.Grant) driver.Renewal) {
	t.Helper()
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
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

func renewChecksOwner(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	t.pass(t.ttl / 2)
	if r := t.renew1(b, stranger(g)); !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("P4: a renewal by another owner returned %v, not ErrNotHeld", r.Err)
	}
	t.outlive(t.ttl / 2)
	t.freed(b, g, "P5: a renewal by another owner kept the name closed")
}

func renewNeverRevives(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	t.outlive(t.ttl)
	t.gone(a, g, "P2: a renewal revived an expired hold")
	t.freed(b, g, "P2: the renewal of an expired hold closed the name again")
	t.gone(a, g, "P2: a renewal revived an expired hold after the name was used again")
}

// gone asserts that a renewal returns ErrNotHeld.
func (t *trial) gone(d driver.Driver, g driver.Grant, why string) {
	t.Helper()
	if r := t.renew1(d, g); r.Err == nil {
		t.Errorf("%s", why)
	} else if !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("P2: renewing a hold that is gone returned %v, not ErrNotHeld", r.Err)
	}
}

func renewAfterNextHolder(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	t.outlive(t.ttl)
	next := t.take(b, t.rival())
	t.gone(a, g, "P1: a renewal revived an expired hold beside the next one")
	t.renew(b, next)
	t.refused(a, t.rival(), "P1: a late renewal freed the next hold")
}

func renewAfterRelease(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	t.release(a, g)
	t.gone(a, g, "P2: a renewal revived a released hold")
	t.freed(b, g, "P2: the renewal of a released hold closed the name again")
}

func renewBatch(t *trial) {
	d := t.open()
	var grants []driver.Grant
	for i := range 9 {
		r := t.hold()
		r.Name = t.freshName()
		g := t.take(d, r)
		if i%3 == 1 {
			t.release(d, g)
		}
		grants = append(grants, g)
	}
	renewals := d.Renew(t.ctx, grants)
	if len(renewals) != len(grants) {
		t.Fatalf("P2: Renew of %d grants returned %d renewals", len(grants), len(renewals))
	}
	for i, r := range renewals {
		switch dead := i%3 == 1; {
		case dead && !errors.Is(r.Err, driver.ErrNotHeld):
			t.Errorf("P2: renewal %d of a batch is of a released hold and returned %v, not ErrNotHeld",
				i, r.Err)
		case !dead && r.Err != nil:
			t.Errorf("P2: renewal %d of a batch is of a live hold and returned %v", i, r.Err)
		}
	}
}

func renewNothing(t *trial) {
	d := t.open()
	if r := d.Renew(t.ctx, nil); len(r) != 0 {
		t.Errorf("P2: Renew of nothing returned %d renewals", len(r))
	}
	if e := d.Release(t.ctx, nil); len(e) != 0 {
		t.Errorf("P4: Release of nothing returned %d errors", len(e))
	}
}
