package drivertest

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var inspects = driver.Caps{Ops: driver.OpInspect}

var inspectCases = []testCase{
	{name: "an unused name is idle", need: inspects, run: inspectUnused},
	{name: "shows the holder", need: inspects, run: inspectHolder},
	{name: "shows readers", need: driver.Caps{Ops: driver.OpInspect, Shared: true}, run: inspectReaders},
	{name: "shows permits", need: driver.Caps{Ops: driver.OpInspect, Slots: true}, run: inspectPermits},
	{name: "shows waiters in order", need: driver.Caps{Ops: driver.OpInspect | driver.OpQueue},
		run: inspectWaiters},
	{name: "shows how long a name is closed", need: inspects, run: inspectClosed},
	{name: "list can be stopped", need: inspects, run: listStops},
}

func (t *trial) inspect(d driver.Driver) driver.Info {
	t.Helper()
	return t.inspectName(d, t.name)
}

func (t *trial) inspectName(d driver.Driver, name string) driver.Info {
	t.Helper()
	info, err := driver.Forward{Driver: d}.Inspect(t.ctx, name)
	if err != nil {
		t.Fatalf("P9: Inspect of %q: %v", name, err)
	}
	return info
}

func (t *trial) list(d driver.Driver, prefix string) []driver.Info {
	t.Helper()
	infos, err := t.listOnce(d, prefix)
	if err != nil {
		t.Fatalf("P9: List of %q: %v", prefix, err)
	}
	return infos
}

func (t *trial) listOnce(d driver.Driver, prefix string) (infos []driver.Info, err error) {
	for info, err := range (driver.Forward{Driver: d}).List(t.ctx, prefix) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func inspectUnused(t *trial) {
	d := t.open()
	if info := t.inspect(d); !info.Idle() || info.Name != t.name {
		t.Errorf("P9: Inspect of an unused name shows %+v", info)
	}
	t.release(d, t.take(d, t.request()))
	if info := t.inspect(d); !info.Idle() {
		t.Errorf("P9: Inspect of a released name shows %+v", info)
	}
	if infos := t.list(d, t.name); len(infos) != 0 {
		t.Errorf("P9: List shows a released name: %+v", infos)
	}
}

func inspectHolder(t *trial) {
	a, b := t.open(), t.open()
	r := t.request()
	r.Note = "the note: é 🔒"
	before := t.now()
	g := t.take(a, r)
	info := t.inspect(b)
	if len(info.Holders) != 1 {
		t.Fatalf("P9: Inspect of a held name shows %d holders", len(info.Holders))
	}
	took := t.now().Sub(before) + time.Second // a store may count in seconds
	switch h := info.Holders[0]; {
	case h.Owner != r.Owner || h.Mode != driver.Exclusive || h.Permits != 0 || info.Slots != 0:
		t.Errorf("P9: Inspect shows another holder: %+v of %d slots", h, info.Slots)
	case h.Note != r.Note:
		t.Errorf("P9: Inspect shows note %q, not %q", h.Note, r.Note)
	case h.Token != g.Token && (g.Token != 0 || t.caps.Fencing): // of a hold without a token it shows what Break takes
		t.Errorf("P3: Inspect shows token %d, the grant has %d", h.Token, g.Token)
	case h.Held < 0 || h.Held > took:
		t.Errorf("P9: Inspect shows a hold of at most %v as %v old", took, h.Held)
	case h.Expires <= 0 || h.Expires > r.TTL+t.caps.Guarantees.Lateness+time.Second:
		t.Errorf("P9: Inspect shows that a hold of %v expires in %v", r.TTL, h.Expires)
	}
}

func inspectReaders(t *trial) {
	a, b := t.open(), t.open()
	owners := map[string]bool{}
	for range 3 {
		owners[t.take(a, t.shared()).Owner] = true
	}
	for _, h := range t.inspect(b).Holders {
		if h.Mode != driver.Shared || !owners[h.Owner] {
			t.Errorf("P9: Inspect shows %+v among the readers", h)
		}
		delete(owners, h.Owner)
	}
	if len(owners) != 0 {
		t.Errorf("P9: Inspect does not show %d of 3 readers", len(owners))
	}
}

func inspectPermits(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.slot(5, 2))
	t.take(b, t.slot(5, 1))
	info := t.inspect(b)
	permits := 0
	for _, h := range info.Holders {
		permits += h.Permits
	}
	if info.Slots != 5 || len(info.Holders) != 2 || permits != 3 {
		t.Errorf("P9: Inspect shows %d holders with %d permits of %d slots; 2 with 3 of 5 are right",
			len(info.Holders), permits, info.Slots)
	}
}

func inspectWaiters(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	first, second := t.request(), t.request()
	first.Note, second.Note = "first", "second"
	t.queued(b, first)
	t.queued(a, second)
	info := t.inspect(b)
	if len(info.Holders) != 1 || info.Holders[0].Owner != g.Owner || len(info.Waiters) != 2 {
		t.Fatalf("P9: Inspect shows %d holders and %d waiters; 1 and 2 are right",
			len(info.Holders), len(info.Waiters))
	}
	one, two := info.Waiters[0], info.Waiters[1]
	if !t.caps.Fair && one.Owner == second.Owner {
		one, two = two, one
	}
	if one.Owner != first.Owner || two.Owner != second.Owner || one.Note != "first" || two.Note != "second" {
		t.Errorf("P8: Inspect shows the waiters as %+v", info.Waiters)
	}
	t.withdraw(b, first)
	t.withdraw(a, second)
	if n := len(t.inspect(b).Waiters); n != 0 {
		t.Errorf("P6: Inspect shows %d waiters after all have withdrawn", n)
	}
}

func inspectClosed(t *trial) {
	d := t.open()
	r := t.request()
	r.MinHold = t.ttl
	g, ok := t.takesDelays(d, r)
	if !ok {
		return
	}
	t.release(d, g)
	if info := t.inspect(d); len(info.Holders) != 0 || info.ClosedFor < 0 || info.ClosedFor > r.MinHold+time.Second {
		t.Errorf("P9: Inspect of a name closed for %v shows %+v", r.MinHold, info)
	}
}

func listStops(t *trial) {
	d := t.open()
	for _, tail := range []string{"/a", "/b", "/c"} {
		r := t.request()
		r.Name += tail
		t.take(d, r)
	}
	n := 0
	for _, err := range (driver.Forward{Driver: d}).List(t.ctx, t.name) {
		if err != nil {
			t.Fatalf("P9: List: %v", err)
		}
		n++
		break
	}
	if n != 1 {
		t.Errorf("P9: List of three names yielded %d before it was stopped", n)
	}
	t.freeNow(d, t.request(), "P9: a List that was stopped left the driver stuck")
}
