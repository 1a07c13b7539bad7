package drivertest

import (
	"reflect"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var guaranteesCases = []testCase{
	{name: "caps are the same for every client", run: capsEqual},
	{name: "caps make sense", run: capsSane},
	{name: "every fault has a verdict", run: everyVerdict},
	{name: "modes are there, or refused", run: modesReal},
	{name: "shards are stable", need: needs{can: opShard}, run: shardsStable},
}

func capsEqual(t *trial) {
	a, b := t.open(), t.open()
	if a.Caps().Store != b.Caps().Store {
		t.Errorf("P10: two clients of one store call it %q and %q", a.Caps().Store, b.Caps().Store)
	}
	if !reflect.DeepEqual(a.Caps(), b.Caps()) || !reflect.DeepEqual(a.Caps(), a.Caps()) {
		t.Errorf("P10: Caps differ between calls or clients")
	}
}

func capsSane(t *trial) {
	c := t.caps
	switch {
	case c.Store == "":
		t.Errorf("P10: Caps.Store is empty: several locks are ordered by it")
	case c.MinTTL < 0 || c.MaxTTL < 0 || (c.MaxTTL != 0 && c.MaxTTL < c.MinTTL):
		t.Errorf("P10: Caps take TTLs from %v to %v", c.MinTTL, c.MaxTTL)
	case c.Poll < 0 || c.TokenBlock < 0 || c.Guarantees.Lateness < 0:
		t.Errorf("P10: Caps have a negative Poll (%v), TokenBlock (%d) or Lateness (%v)", c.Poll,
			c.TokenBlock, c.Guarantees.Lateness)
	case c.Fair && !t.can.has(opQueue):
		t.Errorf("P8: Caps claim fairness between clients without a queue in the store")
	}
}

func everyVerdict(t *trial) {
	g := t.caps.Guarantees
	if g.Summary == "" || g.Tokens == "" {
		t.Errorf("P10: Guarantees have no Summary or do not say what tokens rest on")
	}
	known := map[driver.Fault]bool{}
	for _, f := range driver.Faults() {
		known[f] = true
		switch v, ok := g.Faults[f]; {
		case !ok || v.Exclusion == driver.Unstated || v.Tokens == driver.Unstated:
			t.Errorf("P10: Guarantees leave unstated what %q does", f)
		case (v.Exclusion == driver.Breaks || v.Tokens == driver.Breaks) && v.Note == "":
			t.Errorf("P10: Guarantees say that %q breaks a promise, and not why nor what to do", f)
		case v.Exclusion > driver.Breaks || v.Tokens > driver.Breaks:
			t.Errorf("P10: Guarantees have an unknown verdict on %q", f)
		}
	}
	for f := range g.Faults {
		if !known[f] {
			t.Errorf("P10: Guarantees judge %q, which is no fault that stores are judged by", f)
		}
	}
}

func modesReal(t *trial) {
	if !t.caps.Shared {
		t.refusesMode(t.shared())
	}
	if !t.caps.Slots {
		t.refusesMode(t.slot(2, 1))
	}
	d := t.open()
	t.freeNow(d, t.request(), "P7: exclusive holds are what every store has")
	if t.caps.Shared {
		t.freeNow(d, t.shared(), "P10: Caps list shared holds")
	}
	if t.caps.Slots {
		r := t.slot(2, 1)
		r.Name = t.freshName()
		t.freeNow(d, r, "P10: Caps list semaphores")
	}
}

func shardsStable(t *trial) {
	a, b := wrap.Forward{Driver: t.open()}, wrap.Forward{Driver: t.open()}
	for range 20 {
		r := t.request()
		r.Name = t.freshName()
		again := t.request()
		again.Name = r.Name
		if s := a.Shard(r); s != a.Shard(again) || s != b.Shard(r) {
			t.Errorf("P5: the shard of one name differs between requests or clients")
		}
	}
}
