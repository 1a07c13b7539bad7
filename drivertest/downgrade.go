package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var (
	downgrades       = needs{can: opDowngrade, Shared: true}
	downgradesQueued = needs{can: opDowngrade | opQueue, Shared: true}
)

// What is the same for all shared holds is tested with the kind that is downgraded.
var downgradeCases = []testCase{
	{name: "lets readers in and no writer", need: downgrades, run: downgradeShares},
	{name: "is idempotent", need: downgrades, run: downgradeTwice},
	{name: "starts the TTL again", need: downgrades, run: downgradeExtends, time: true},
	{name: "checks the owner", need: downgrades, run: downgradeChecksOwner},
	{name: "of a hold that is gone", need: downgrades, run: downgradeGone, time: true},
	{name: "keeps the token that was handed over", need: downgrades, run: downgradeHandedOver},
	{name: "lets waiting readers in", need: downgradesQueued, run: downgradeQueue},
}

func (t *trial) downgrade(d driver.Driver, g driver.Grant) driver.Grant {
	t.Helper()
	g.Claim = true // a grant that is given back says nothing by it: the answer must not repeat it
	shared, err := wrap.Forward{Driver: d}.Downgrade(t.ctx, g)
	if err != nil {
		if driver.Gone(err) && t.pool != nil && t.now() >= t.until(g) {
			t.done() // this machine stood still until the hold had expired
		}
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
	t.after(reader, g, "a reader beside a downgraded hold")
	g = t.renew(a, g)
	t.release(b, t.take(b, t.shared())) // a renewal leaves it shared
	t.release(a, g)
	t.refused(a, t.request(), "P1: the release of a downgraded hold freed another reader's")
	t.release(b, reader)
	t.freed(a, reader, "P4: a downgraded hold was not freed by its release")
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

// downgradeExtends: the new grant says from when on and for how long the hold is good, and the store keeps it for
// as long.
func downgradeExtends(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.brief())
	ends := t.until(g)
	t.pass(t.ttl * 2 / 3)
	shared, err := wrap.Forward{Driver: a}.Downgrade(t.ctx, g)
	if driver.Gone(err) && t.now() >= ends {
		return // this machine stood still until the hold had expired
	} else if err != nil {
		t.Fatalf("P2: Downgrade of a hold that had not expired: %v", err)
	}
	ends = t.until(shared)
	t.pass(t.ttl * 2 / 3)
	t.closedUntil(b, ends, "P1: a downgraded hold ended before its TTL")
	t.outlive(t.ttl)
	t.freed(b, shared, "P5: a downgraded hold did not end after its TTL")
}

func downgradeChecksOwner(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	if _, err := (wrap.Forward{Driver: b}).Downgrade(t.ctx, stranger(g)); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Downgrade by another owner returned %v, not ErrNotHeld", err)
	}
	t.refused(b, t.shared(), "P4: Downgrade by another owner changed the hold")
	t.renew(a, g)
}

func downgradeGone(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	next := t.take(b, t.request())
	if _, err := (wrap.Forward{Driver: a}).Downgrade(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Downgrade of a released hold returned %v, not ErrNotHeld", err)
	}
	t.refused(a, t.shared(), "P4: Downgrade of a released hold changed the next one")
	t.release(b, t.renew(b, next))
	g = t.take(a, t.brief())
	t.outlive(t.ttl)
	if _, err := (wrap.Forward{Driver: a}).Downgrade(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P2: Downgrade of an expired hold returned %v, not ErrNotHeld", err)
	}
	t.freed(b, g, "P2: Downgrade has revived an expired hold")
}

// downgradeHandedOver: package holdfast has handed the hold over inside the process, and renews it before it
// downgrades it.
func downgradeHandedOver(t *trial) {
	a, b := t.open(), t.open()
	g := usedInPart(t.take(a, t.block(7)))
	g = t.renew(a, g)
	g.HandedOver = false
	g = t.downgrade(a, g)
	t.after(t.take(b, t.shared()), g, "a reader beside a hold that was handed over and downgraded")
}

// downgradeQueue: two readers wait, and a writer between them.
func downgradeQueue(t *trial) {
	a, b, c := t.open(), t.open(), t.open()
	g := t.take(a, t.request())
	first, writer, second := t.shared(), t.request(), t.shared()
	t.queued(b, first)
	t.queued(c, writer)
	t.queued(b, second)
	w := t.waitFor(b, first)
	g = t.downgrade(a, g)
	reader := t.granted(w, t.poll, "P7: a waiting reader was not let in by a downgrade")
	t.after(reader, g, "a reader was let in by a downgrade")
	if _, err := t.enqueue(c, writer); err == nil {
		t.Errorf("P1: a writer was let in by a downgrade")
	}
	if _, err := t.enqueue(b, second); err == nil && t.caps.Fair {
		t.Errorf("P8: a reader that a downgrade let in has overtaken a writer")
	}
	t.renew(a, g)
}
