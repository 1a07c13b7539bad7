package drivertest

import (
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var inspects = needs{can: opOperator}

var inspectCases = []testCase{
	{name: "an unused name is idle", need: inspects, run: inspectUnused},
	{name: "shows the holder", need: inspects, kinds: kinds, run: inspectHolder},
	{name: "shows readers", need: needs{can: opOperator, Shared: true}, run: inspectReaders},
	{name: "shows permits", need: needs{can: opOperator, Slots: true}, run: inspectPermits},
	{name: "shows waiters in order", need: needs{can: opOperator | opQueue}, kinds: modes,
		run: inspectWaiters},
	{name: "list can be stopped", need: inspects, run: listStops},
}

func (t *trial) inspect(d driver.Driver) driver.Info {
	t.Helper()
	return t.inspectName(d, t.name)
}

func (t *trial) inspectName(d driver.Driver, name string) driver.Info {
	t.Helper()
	info, err := wrap.Forward{Driver: d}.Inspect(t.ctx, name)
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
	for info, err := range (wrap.Forward{Driver: d}).List(t.ctx, prefix) {
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

// longNote is as long as package holdfast allows, and has characters that stores may change, or cut in two.
var longNote = func() string {
	note := "the note: \"\\'% %s {} <a> &amp;\u00a0é 🔒 "
	note += strings.Repeat("日本", (holdfast.MaxNote-len(note))/6)
	return note + strings.Repeat("x", holdfast.MaxNote-len(note))
}()

func inspectHolder(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.Note = longNote
	before := t.now()
	g := t.have(a, r)
	t.shown(b, g, before)
	t.shown(b, t.renew(a, g), before)
}

// shown asserts that Inspect and List show a hold as it was granted, after an instant, and nothing else.
func (t *trial) shown(d driver.Driver, g driver.Grant, before driver.Instant) {
	t.Helper()
	listed := t.list(d, t.name)
	if len(listed) != 1 {
		t.Fatalf("P9: List of a held name shows %+v", listed)
	}
	t.shows(listed[0], g, before)
	t.shows(t.inspect(d), g, before)
}

func (t *trial) shows(info driver.Info, g driver.Grant, before driver.Instant) {
	t.Helper()
	if len(info.Holders) != 1 || len(info.Waiters) != 0 {
		t.Fatalf("P9: of a held name that nobody waits for is shown %+v", info)
	}
	const tick = time.Second // a store may count in seconds
	took := t.now().Sub(before) + tick
	switch h := info.Holders[0]; {
	case info.Name != g.Name || h.Owner != g.Owner || h.Mode != g.Mode || h.Permits != g.Permits || info.Slots != g.Slots:
		t.Errorf("P9: another hold is shown: %+v of %d slots", h, info.Slots)
	case info.ClosedFor > 0:
		t.Errorf("P9: a held name is shown as closed for %v", info.ClosedFor)
	case h.Note != g.Note && !t.caps.NoNotes:
		t.Errorf("P9: the note %q is shown as %q", g.Note, h.Note)
	case h.Token != g.Token && (g.Token != 0 || t.caps.Fencing && g.Mode != driver.Slot): // of a hold without a token is shown what Break takes
		t.Errorf("P3: token %d is shown, the grant has %d", h.Token, g.Token)
	case h.Held < 0 || h.Held > took:
		t.Errorf("P9: a hold of at most %v is shown as %v old", took, h.Held)
	case h.Expires <= 0 || h.Expires > g.TTL+t.caps.Guarantees.Lateness+tick:
		t.Errorf("P9: a hold of %v is shown to expire in %v", g.TTL, h.Expires)
	case h.Expires < g.Valid/2-took: // a store may not know how long ago a session was renewed
		t.Errorf("P1: a hold that is valid for %v, and at most %v old, is shown to expire in %v", g.Valid, took, h.Expires)
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
	g := t.take(a, t.rival())
	first, second := t.hold(), t.rival()
	first.Note, second.Note = longNote, "second"
	t.queued(b, first)
	t.queued(a, second)
	info := t.inspect(b)
	if t.dropped(first, second) {
		return
	}
	if len(info.Holders) != 1 || info.Holders[0].Owner != g.Owner || len(info.Waiters) != 2 || info.Slots != g.Slots {
		t.Fatalf("P9: Inspect of a name with a holder and two waiters shows %+v", info)
	}
	waiters := info.Waiters
	if !t.caps.Fair && waiters[0].Owner == second.Owner {
		waiters[0], waiters[1] = waiters[1], waiters[0]
	}
	for i, r := range []driver.Request{first, second} {
		if w := waiters[i]; w.Owner != r.Owner || w.Note != r.Note && !t.caps.NoNotes || w.Mode != r.Mode || w.Permits != 0 && w.Permits != r.Permits {
			t.Errorf("P8: Inspect shows the waiters as %+v", info.Waiters)
		}
	}
	t.withdraw(b, first)
	t.withdraw(a, second)
	if n := len(t.inspect(b).Waiters); n != 0 {
		t.Errorf("P6: Inspect shows %d waiters after all have withdrawn", n)
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
	for _, err := range (wrap.Forward{Driver: d}).List(t.ctx, t.name) {
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
