package drivertest

var expiryCases = []testCase{
	{name: "a hold lasts as long as it is trusted, and then opens", kinds: kinds, time: true, run: holdLasts},
	{name: "the shortest TTL", time: true, run: shortestTTL},
	{name: "an expired hold is not shown", need: inspects, kinds: kinds, time: true, timed: true,
		run: expiredNotShown},
}

// holdLasts tries again and again to take a name while its holder trusts the hold.
func holdLasts(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	ends, taken := t.until(g), t.now() // on a slow store the hold may have begun only now
	t.pass(t.ttl / 2)
	for t.now() < ends.Add(-t.ttl/16) {
		t.closedUntil(b, ends, "P1: a hold ended before its TTL")
		t.pass(t.ttl / 16)
	}
	t.outlive(max(0, taken.Add(t.ttl).Sub(t.now())))
	t.freed(b, g, "P5: a dead holder's name did not open after its TTL")
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
	t.have(a, t.briefHold())
	t.outlive(t.ttl)
	if info := t.inspect(a); !info.Idle() {
		t.Errorf("P9: Inspect shows an expired hold: %+v", info)
	}
}
