package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

var downgrades = driver.Caps{Ops: driver.OpDowngrade, Shared: true}

var downgradeCases = []testCase{
	{name: "lets readers in and no writer", need: downgrades, run: downgradeShares},
	{name: "is idempotent", need: downgrades, run: downgradeTwice},
	{name: "of a hold that is gone", need: downgrades, run: downgradeGone},
	{name: "lets waiting readers in",
		need: driver.Caps{Ops: driver.OpDowngrade | driver.OpQueue, Shared: true},
		run:  downgradeQueue},
}

func (t *trial) downgrade(d driver.Driver, g driver.Grant) driver.Grant {
	t.Helper()
	shared, err := driver.Forward{Driver: d}.Downgrade(t.ctx, g)
	if err != nil {
		t.Fatalf("P1: Downgrade of a live hold: %v", err)
	}
	if shared.Token < g.Token {
		t.Errorf("P3: Downgrade lowered the token from %d to %d", g.Token, shared.Token)
	}
	r := g.Request
	r.Mode = driver.Shared
	t.sane(shared, r)
	return shared
}

func downgradeShares(t *trial) {
	a, b := t.open(), t.open()
	g := t.downgrade(a, t.take(a, t.request()))
	t.refused(b, t.request(), "P1: a writer was let in beside a downgraded hold")
	reader := t.take(b, t.shared())
	g = t.renew(a, g)
	t.release(a, g)
	t.refused(a, t.request(), "P1: the release of a downgraded hold freed another reader's")
	t.release(b, reader)
	t.freeNow(a, t.request(), "P4: a downgraded hold was not freed by its release")
}

func downgradeTwice(t *trial) {
	d := t.open()
	g := t.downgrade(d, t.take(d, t.request()))
	again := t.downgrade(d, g)
	if again.Token != g.Token {
		t.Errorf("P3: a repeated Downgrade changed the token from %d to %d", g.Token, again.Token)
	}
	t.release(d, again)
	t.freeNow(d, t.request(), "P4: a hold downgraded twice was not freed by one release")
}

func downgradeGone(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	next := t.take(b, t.request())
	if _, err := (driver.Forward{Driver: a}).Downgrade(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Downgrade of a released hold returned %v, not ErrNotHeld", err)
	}
	t.refused(a, t.shared(), "P4: Downgrade of a released hold changed the next one")
	t.renew(b, next)
}

func downgradeQueue(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	r := t.shared()
	t.queued(b, r)
	w := t.waitFor(b, r)
	g = t.downgrade(a, g)
	t.granted(w, t.poll, "P7: a waiting reader was not let in by a downgrade")
	t.renew(a, g)
}
