package drivertest

import "github.com/holdfastlock/holdfast/driver"

var expiryCases = []testCase{
	{name: "a dead holder's name opens", time: true, run: deadHolderOpens},
	{name: "a hold lasts as long as it is trusted", time: true, run: holdLasts},
	{name: "the shortest TTL", time: true, run: shortestTTL},
	{name: "an expired hold is not shown", need: driver.Caps{Ops: driver.OpInspect}, time: true, timed: true,
		run: expiredNotShown},
}

func deadHolderOpens(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.brief())
	t.outlive(t.ttl)
	t.freeNow(b, t.request(), "P5: a dead holder's name did not open after its TTL")
}

// holdLasts tries again and again to take a name while its holder trusts the hold.
func holdLasts(t *trial) {
	a, b := t.open(), t.open()
	start := t.now()
	t.take(a, t.brief())
	taken := t.now() // on a slow store the hold may have begun only now
	t.pass(t.ttl / 2)
	for t.now() < start.Add(t.ttl*15/16) {
		t.closedUntil(b, start.Add(t.ttl), "P1: a hold ended before its TTL")
		t.pass(t.ttl / 16)
	}
	t.outlive(max(0, taken.Add(t.ttl).Sub(t.now())))
	t.freeNow(b, t.request(), "P5: a dead holder's name did not open after its TTL")
}

func shortestTTL(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.TTL = max(t.caps.MinTTL, 1e6)
	g, err := t.try1(a, r)
	if err != nil {
		t.Fatalf("P10: Caps.MinTTL is %v, and Try with a TTL of %v returned: %v", t.caps.MinTTL,
			r.TTL, err)
	}
	t.outlive(r.TTL)
	t.gone(a, g, "P2: a renewal revived a hold of the shortest TTL")
	t.freeNow(b, t.request(), "P5: a hold of the shortest TTL did not end")
}

func expiredNotShown(t *trial) {
	a := t.open()
	t.take(a, t.brief())
	t.outlive(t.ttl)
	if info := t.inspect(a); !info.Idle() {
		t.Errorf("P9: Inspect shows an expired hold: %+v", info)
	}
}
