package drivertest

import (
	"errors"

	"github.com/holdfastlock/holdfast/driver"
)

// What is the same for all shared holds is tested with the kind that is downgraded.
var downgradeCases = []testCase{
	{name: "lets readers in and no writer", need: opDowngrade | opShared, run: func(t *trial, a, b driver.Driver) {
		g := t.downgrade(a, t.take(a, t.request()))
		if again := t.downgrade(a, g); again.Token != g.Token {
			t.Errorf("P3: a repeated Downgrade changed the token from %d to %d", g.Token, again.Token)
		}
		t.refused(b, t.request(), "P1: a writer was let in beside a downgraded hold")
		reader := t.take(b, t.shared())
		t.after(reader, g, "a reader beside a downgraded hold")
		g = t.renew(a, g)
		t.release(b, t.take(b, t.shared())) // a renewal leaves it shared
		t.release(a, g)
		t.refused(a, t.request(), "P1: the release of a downgraded hold freed another reader's")
		t.release(b, reader)
		t.freed(a, reader, "P4: a downgraded hold was not freed by its release")
	}},
	{name: "starts the TTL again", need: opDowngrade | opShared, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.brief(t.request()))
		ends := t.until(g)
		t.pass(t.ttl * 2 / 3)
		shared, err := ops(a).Downgrade(t.ctx, g)
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
	}},
	{name: "checks the owner", need: opDowngrade | opShared, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.request())
		t.downgradesNothing(b, stranger(g), "P4: Downgrade by another owner")
		t.refused(b, t.shared(), "P4: Downgrade by another owner changed the hold")
		t.release(a, g)
		next := t.take(b, t.request())
		t.downgradesNothing(a, g, "P4: Downgrade of a released hold")
		t.refused(a, t.shared(), "P4: Downgrade of a released hold changed the next one")
		t.renew(b, next)
	}},
	{name: "of a hold that is gone", need: opDowngrade | opShared, time: true, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.brief(t.request()))
		t.outlive(t.ttl)
		t.downgradesNothing(a, g, "P2: Downgrade of an expired hold")
		t.freed(b, g, "P2: Downgrade has revived an expired hold")
	}},
	// Package holdfast has handed the hold over inside the process, and renews it before it downgrades it.
	{name: "keeps the token that was handed over", need: opDowngrade | opShared, run: func(t *trial, a, b driver.Driver) {
		g := t.renew(a, usedInPart(t.take(a, t.block(7))))
		g.HandedOver = false
		g = t.downgrade(a, g)
		t.after(t.take(b, t.shared()), g, "a reader beside a hold that was handed over and downgraded")
	}},
	{name: "lets waiting readers in", need: opDowngrade | opQueue | opShared, run: func(t *trial, a, b driver.Driver) {
		g := t.take(a, t.request())
		first, writer, second := t.shared(), t.request(), t.shared()
		t.queued(b, first)
		t.queued(a, writer)
		t.queued(b, second)
		w := t.waitFor(b, first)
		g = t.downgrade(a, g)
		t.after(t.granted(w, t.poll, "P7: a waiting reader was not let in by a downgrade"), g, "a reader was let in by a downgrade")
		t.waits(a, writer, "P1: a writer was let in by a downgrade")
		if t.caps.Fair {
			t.waits(b, second, "P8: a reader that a downgrade let in has overtaken a writer")
		}
		t.renew(a, g)
	}},
}

func (t *trial) downgrade(d driver.Driver, g driver.Grant) driver.Grant {
	t.Helper()
	g.Claim = true // a grant that is given back says nothing by it: the answer must not repeat it
	shared, err := ops(d).Downgrade(t.ctx, g)
	if driver.Gone(err) && t.pool != nil && t.now() >= t.until(g) {
		t.done() // this machine stood still until the hold had expired
	} else if err != nil {
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

// downgradesNothing asserts that the owner has no hold to downgrade.
func (t *trial) downgradesNothing(d driver.Driver, g driver.Grant, what string) {
	t.Helper()
	if _, err := ops(d).Downgrade(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("%s returned %v, not ErrNotHeld", what, err)
	}
}
