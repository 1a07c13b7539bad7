package drivertest

import (
	"errors"
	"reflect"

	"github.com/holdfastlock/holdfast/driver"
)

// guaranteesCases are about what a driver says of itself.
var guaranteesCases = []testCase{
	{name: "caps are the same for every client", run: func(t *trial, a, b driver.Driver) {
		if !reflect.DeepEqual(a.Caps(), b.Caps()) || !reflect.DeepEqual(a.Caps(), t.caps) {
			t.Errorf("P10: Caps differ between calls or clients of one store: %+v, %+v", a.Caps(), b.Caps())
		}
	}},
	{name: "caps make sense", run: func(t *trial, a, b driver.Driver) {
		c := t.caps
		switch {
		case c.Store == "":
			t.Errorf("P10: Caps.Store is empty: several locks are ordered by it")
		case c.MinTTL < 0 || c.MaxTTL < 0 || (c.MaxTTL != 0 && c.MaxTTL < c.MinTTL):
			t.Errorf("P10: Caps take TTLs from %v to %v", c.MinTTL, c.MaxTTL)
		case c.Poll < 0 || c.TokenBlock < 0 || c.Guarantees.Lateness < 0:
			t.Errorf("P10: Caps have a negative Poll (%v), TokenBlock (%d) or Lateness (%v)", c.Poll, c.TokenBlock, c.Guarantees.Lateness)
		case c.Fair && !t.can(opQueue):
			t.Errorf("P8: Caps claim fairness between clients without a queue in the store")
		}
		for range 20 {
			r := t.elsewhere()
			if s := ops(a).Shard(r); t.can(opShard) && (s != ops(a).Shard(named(t.request(), r.Name)) || s != ops(b).Shard(r)) {
				t.Errorf("P5: the shard of one name differs between requests or clients")
			}
		}
	}},
	{name: "every fault has a verdict", alone: func(t *trial) {
		g := t.caps.Guarantees
		if g.Summary == "" || g.Tokens == "" || len(g.Faults) != len(driver.Faults()) {
			t.Errorf("P10: Guarantees have no Summary, do not say what tokens rest on, or judge what is no fault")
		}
		for _, f := range driver.Faults() {
			switch v := g.Faults[f]; {
			case v.Exclusion == driver.Unstated || v.Tokens == driver.Unstated:
				t.Errorf("P10: Guarantees leave unstated what %q does", f)
			case (v.Exclusion == driver.Breaks || v.Tokens == driver.Breaks) && v.Note == "":
				t.Errorf("P10: Guarantees say that %q breaks a promise, and not why nor what to do", f)
			case v.Exclusion > driver.Breaks || v.Tokens > driver.Breaks:
				t.Errorf("P10: Guarantees have an unknown verdict on %q", f)
			}
		}
	}},
	{name: "modes are there, or refused", run: func(t *trial, a, _ driver.Driver) {
		t.freeNow(a, t.request(), "P7: exclusive holds are what every store has")
		for _, m := range []struct {
			has bool
			r   driver.Request
		}{{t.caps.Shared, t.shared()}, {t.caps.Slots, named(t.slot(2, 1), t.freshName())}} {
			if m.has {
				t.freeNow(a, m.r, "P10: Caps list the mode")
			} else if _, err := t.try1(a, m.r); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("P10: Try in a mode that Caps does not list (%v) returned %v, not ErrUnsupported", m.r.Mode, err)
			}
		}
		t.freeNow(a, t.request(), "P6: a refused mode left something behind")
	}},
}
