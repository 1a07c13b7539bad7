package drivertest

import (
	"runtime"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// How many holds there are at the first count of goroutines or connections and at the second. A driver may need some
// for its connections, but not one for each hold.
const (
	few  = 8
	many = few + 32
)

// leaksCases are about what a driver leaves behind, and what it needs for each hold (P9).
var leaksCases = []testCase{
	{name: "closed driver", run: func(t *trial, _, b driver.Driver) {
		a := t.h.Open(t.TB)
		g, err := a.Try(t.ctx, t.request())
		if err != nil {
			t.Fatalf("P7: Try of a free name: %v", err)
		}
		t.release(a, g)
		t.close(a)
		if g, err := a.Try(t.ctx, t.request()); err == nil {
			t.Errorf("P9: a closed driver was granted a hold: %+v", g)
		}
		if r := t.renew1(a, g); r.Err == nil {
			t.Errorf("P2: a closed driver renewed a released hold")
		}
		t.freeNow(b, t.request(), "P9: a closed driver took the name")
	}},
	{name: "goroutines do not grow with holds", serial: true, run: func(t *trial, a, _ driver.Driver) {
		before := 0
		var grants []driver.Grant
		for i := range many {
			if i == few {
				before = goroutines()
			}
			grants = append(grants, t.take(a, t.elsewhere()))
		}
		fewer := 0
		if !t.within(t.slack, func() bool {
			if fewer++; goroutines()-before >= (many-few)/2 {
				fewer = 0
			}
			return fewer == 5 // in a row: on a busy machine some may have been about to start
		}) {
			t.Errorf("P9: %d more holds are at least %d more goroutines", many-few, (many-few)/2)
		}
		for i, err := range t.releases(a, grants...) {
			if err != nil && t.clock.Now() < grants[i].Since.Add(grants[i].Valid) {
				t.Errorf("P4: a release in a batch failed: %v", err)
			}
		}
	}},
}

// goroutines returns the number of goroutines, without those that come and go.
func goroutines() int {
	least := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(time.Millisecond)
		least = min(least, runtime.NumGoroutine())
	}
	return least
}

// connectionsCases count the connections of a client to its store.
var connectionsCases = []testCase{
	{name: "connections do not grow with holds", wired: func(t *trial, d driver.Driver, wire Transport, _ driver.Driver) {
		before := 0
		for i := range many {
			if i == few {
				before = wire.Connections()
			}
			t.take(d, t.elsewhere())
		}
		if now := wire.Connections(); now-before >= (many-few)/2 {
			t.Errorf("P9: %d more holds are %d more connections", many-few, now-before)
		}
	}},
	{name: "close ends the connections", alone: func(t *trial) {
		d, wire := t.h.Transport(t.TB)
		g, err := d.Try(t.ctx, t.request())
		if err != nil {
			t.Fatalf("P7: Try of a free name: %v", err)
		}
		t.release(d, g)
		t.close(d)
		if !t.within(t.slack, func() bool { return wire.Connections() == 0 }) {
			t.Errorf("P9: %d connections are left after Close", wire.Connections())
		}
	}},
}

// swept asserts, after the last case, that none of the cases' names is in use. Holds that a case let expire are gone
// at the end of their TTL. If the caller still injects faults, the store may not answer, and is asked again.
func (s *suite) swept(tb testing.TB) {
	if !s.can(opOperator) || tb.Failed() {
		return // a case that failed may have left something behind
	}
	t := &trial{TB: tb, suite: s, ctx: tb.Context()}
	d := s.h.Open(tb)
	defer d.Close()
	expired := 3*s.ttl + s.caps.Guarantees.Lateness
	if s.h.Advance != nil {
		t.pass(expired)
	}
	var infos []driver.Info
	var err error
	t.within(expired+2*s.poll+s.slack, func() bool {
		infos, err = t.listOnce(d, s.prefix)
		return err == nil && len(infos) == 0 || err != nil && s.h.FaultBetween == nil
	})
	if err != nil {
		tb.Errorf("P9: List of %q: %v", s.prefix, err)
	} else if len(infos) != 0 {
		tb.Errorf("P9: %d names are in use after the last user has released them: %+v", len(infos), infos[0])
	}
}
