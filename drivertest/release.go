package drivertest

import "github.com/holdfastlock/holdfast/driver"

var releaseCases = []testCase{
	{name: "by another owner", kinds: kinds, run: releaseByStranger},
	{name: "repeated", kinds: modes, run: releaseRepeated},
	{name: "repeated over the next hold", kinds: kinds, run: releaseRepeatedOverNext},
	{name: "late, over the next hold", kinds: modes, time: true, run: releaseLate},
	{name: "from another client of the owner", kinds: modes, run: releaseElsewhere},
	{name: "a batch keeps its order", kinds: modes, run: releaseBatch},
}

func releaseByStranger(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	if err := t.release1(b, stranger(g)); err != nil && !driver.Gone(err) {
		t.Errorf("P4: release by another owner returned %v; ErrNotHeld or nil is right", err)
	}
	t.refused(b, t.rival(), "P4: release by another owner freed the hold")
	t.renew(a, g)
}

func releaseRepeated(t *trial) {
	d := t.open()
	g := t.have(d, t.hold())
	t.release(d, g)
	for range 2 {
		if err := t.release1(d, g); err != nil && !driver.Gone(err) {
			t.Errorf("P4: a repeated release returned %v; ErrNotHeld or nil is right", err)
		}
	}
	t.freed(d, g, "P4: a repeated release closed the name")
}

func releaseRepeatedOverNext(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	t.release(a, g)
	next := t.take(b, t.rival())
	t.release1(a, g)
	t.renew(b, next)
	t.refused(a, t.rival(), "P4: a repeated release freed the next hold")
}

func releaseLate(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	t.outlive(t.ttl)
	next := t.take(b, t.rival())
	if err := t.release1(a, g); err != nil && !driver.Gone(err) {
		t.Errorf("P4: release of an expired hold returned %v; ErrNotHeld or nil is right", err)
	}
	t.renew(b, next)
	t.refused(a, t.rival(), "P4: a late release freed the next hold")
}

// releaseElsewhere: a hold belongs to its owner, not to a connection, so another client may
// release it, unless the grant has a Handle.
func releaseElsewhere(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	if g.Handle != nil {
		t.release(a, g)
	} else {
		t.release(b, g)
	}
	t.freed(b, g, "P4: the owner's release did not free the name")
}

func releaseBatch(t *trial) {
	d, other := t.open(), t.open()
	var grants []driver.Grant
	for i := range 6 {
		r := t.hold()
		r.Name = t.freshName()
		g := t.take(d, r)
		if i%2 == 1 {
			g.Owner = newOwner()
		}
		grants = append(grants, g)
	}
	errs := d.Release(t.ctx, grants)
	if len(errs) != len(grants) {
		t.Fatalf("P4: Release of %d grants returned %d errors", len(grants), len(errs))
	}
	for i, err := range errs {
		r := t.rival()
		r.Name = grants[i].Name
		if i%2 == 1 {
			t.refused(other, r, "P4: release by another owner in a batch freed the hold")
		} else if err != nil {
			t.Errorf("P4: release %d of a batch is the holder's and returned %v", i, err)
		} else {
			t.freeNow(other, r, "P4: a release in a batch did not free the name")
		}
	}
}
