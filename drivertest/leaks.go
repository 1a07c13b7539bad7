package drivertest

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var leaksCases = []testCase{
	{name: "closed driver", run: closedDriver},
	{name: "many names leave nothing", need: inspects, run: namesLeaveNothing},
}

// closedDriver: calls after Close fail, and do nothing.
func closedDriver(t *trial) {
	a, b := t.h.Open(t.TB), t.open()
	g, err := a.Try(t.ctx, t.request())
	if err != nil {
		t.Fatalf("P7: Try of a free name: %v", err)
	}
	t.release(a, g)
	if err := a.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	if g, err := a.Try(t.ctx, t.request()); err == nil {
		t.Errorf("P9: a closed driver was granted a hold: %+v", g)
	}
	if r := t.renew1(a, g); r.Err == nil {
		t.Errorf("P2: a closed driver renewed a released hold")
	}
	t.freeNow(b, t.request(), "P9: a closed driver took the name")
}

func namesLeaveNothing(t *trial) {
	d := t.open()
	var grants []driver.Grant
	for range 50 {
		r := t.request()
		r.Name = t.freshName()
		grants = append(grants, t.take(d, r))
	}
	for _, err := range d.Release(t.ctx, grants) {
		if err != nil {
			t.Errorf("P4: a release in a batch failed: %v", err)
		}
	}
	for _, g := range grants {
		if infos := t.list(d, g.Name); len(infos) != 0 {
			t.Errorf("P9: List shows a released name: %+v", infos)
		}
	}
}

// swept asserts, after the last case, that none of the cases' names is in use. Holds that a
// case let expire are gone at the end of their TTL. If the caller still injects faults, the
// store may not answer, and is asked again.
func (s *suite) swept(tb testing.TB) {
	if !s.can.has(opOperator) || tb.Failed() {
		return // a case that failed may have left something behind
	}
	t := &trial{TB: tb, suite: s, ctx: tb.Context()}
	d := s.h.Open(tb)
	defer d.Close()
	expired := 3*s.ttl + s.caps.Guarantees.Lateness
	end := time.Now().Add(expired + 2*s.poll + s.slack)
	if s.h.Advance != nil {
		t.pass(expired)
	}
	for {
		infos, err := t.listOnce(d, s.prefix)
		switch late := time.Now().After(end); {
		case err != nil && (s.h.FaultBetween == nil || late):
			tb.Errorf("P9: List of %q: %v", s.prefix, err)
			return
		case err == nil && len(infos) == 0:
			return
		case err == nil && late:
			tb.Errorf("P9: %d names are in use after the last user has released them: %+v",
				len(infos), infos[0])
			return
		}
		time.Sleep(t.tick())
	}
}
