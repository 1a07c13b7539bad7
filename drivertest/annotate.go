package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var annotates = driver.Caps{Ops: driver.OpAnnotate | driver.OpInspect}

var annotateCases = []testCase{
	{name: "changes the note and nothing else", need: annotates, kinds: kinds, run: annotateShows},
	{name: "does not renew", need: annotates, kinds: modes, run: annotateDoesNotRenew, time: true},
	{name: "of one of several", need: annotates, kinds: several, run: annotateOne},
	{name: "of a hold that is gone", need: annotates, run: annotateGone},
	{name: "is kept over a renewal", need: annotates, kinds: modes, run: annotateKept},
}

func (t *trial) annotate(d driver.Driver, g driver.Grant, note string) driver.Grant {
	t.Helper()
	g.Note = note
	if err := (driver.Forward{Driver: d}).Annotate(t.ctx, g); err != nil {
		t.Fatalf("P4: Annotate of a live hold: %v", err)
	}
	return g
}

// noted asserts that the holds have these notes, by owner.
func (t *trial) noted(d driver.Driver, want map[string]string) {
	t.Helper()
	info := t.inspect(d)
	if len(info.Holders) != len(want) {
		t.Errorf("P4: Annotate changed how many hold: %+v", info.Holders)
	}
	for _, h := range info.Holders {
		if h.Note != want[h.Owner] {
			t.Errorf("P4: a hold has the note %q, not %q", h.Note, want[h.Owner])
		}
	}
}

func annotateShows(t *trial) {
	a, b := t.open(), t.open()
	before := t.now()
	g := t.have(a, t.hold())
	for _, note := range []string{"second: é 🔒 % {}", "", longNote} {
		g = t.annotate(a, g, note)
		t.shown(b, g, before)
	}
	t.refused(b, t.rival(), "P1: Annotate freed the name")
	t.release(a, g)
	t.freed(b, g, "P4: a hold with a new note was not freed by its release")
}

func annotateDoesNotRenew(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.briefHold())
	t.pass(t.ttl * 3 / 4)
	g.Note = "again"
	if err := (driver.Forward{Driver: a}).Annotate(t.ctx, g); err != nil && !driver.Gone(err) {
		t.Fatalf("P4: Annotate of a live hold: %v", err)
	}
	t.outlive(t.ttl / 2)
	t.freed(b, g, "P5: Annotate made a hold last longer")
}

func annotateOne(t *trial) {
	a, b := t.open(), t.open()
	g, other := t.take(a, t.hold()), t.take(b, t.beside())
	g = t.annotate(a, g, "mine")
	t.noted(b, map[string]string{g.Owner: "mine", other.Owner: other.Note})
	t.release(a, g)
	t.release(b, other)
}

func annotateGone(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	next := t.take(b, t.request())
	g.Note = "not mine"
	if err := (driver.Forward{Driver: a}).Annotate(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Annotate of a released hold returned %v, not ErrNotHeld", err)
	}
	t.noted(b, map[string]string{next.Owner: next.Note})
	t.release(b, next)
	if err := (driver.Forward{Driver: a}).Annotate(t.ctx, g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: Annotate of a released hold returned %v, not ErrNotHeld", err)
	}
	t.freeNow(b, t.request(), "P4: Annotate of a released hold took the name")
}

func annotateKept(t *trial) {
	a, b := t.open(), t.open()
	before := t.now()
	g := t.renew(a, t.annotate(a, t.have(a, t.hold()), longNote))
	t.shown(b, g, before)
	if g.Mode == driver.Exclusive && t.caps.Ops.Has(driver.OpDowngrade) {
		t.shown(b, t.downgrade(a, g), before)
	}
}

var watches = driver.Caps{Ops: driver.OpWatch | driver.OpInspect}

var watchCases = []testCase{
	{name: "tells of every change", need: watches, run: watchTells},
	{name: "ends with its context", need: watches, run: watchEnds},
	{name: "does not wake itself", need: watches, run: watchQuiet},
}

func (t *trial) watch(ctx context.Context, d driver.Driver) <-chan struct{} {
	t.Helper()
	hints, err := driver.Forward{Driver: d}.Watch(ctx, t.name)
	if err != nil {
		t.Fatalf("P7: Watch: %v", err)
	}
	return hints
}

// hinted waits for hints, and inspects the name after each, until it is as wanted.
func (t *trial) hinted(d driver.Driver, hints <-chan struct{}, why string, want func(driver.Info) bool) {
	t.Helper()
	timer := time.NewTimer(t.slack)
	defer timer.Stop()
	for {
		select {
		case _, more := <-hints:
			if !more {
				t.Fatalf("P7: the channel of a watch was closed")
			}
			if want(t.inspect(d)) {
				return
			}
		case <-timer.C:
			t.Fatalf("%s", why)
		}
	}
}

func watchTells(t *trial) {
	a, b := t.open(), t.open()
	hints := t.watch(t.ctx, b)
	g := t.take(a, t.request())
	t.hinted(b, hints, "P7: a watch was not told of a new holder", func(i driver.Info) bool { return len(i.Holders) == 1 })
	if t.caps.Ops.Has(driver.OpAnnotate) {
		g = t.annotate(a, g, "new")
		t.hinted(b, hints, "P7: a watch was not told of a new note", func(i driver.Info) bool { return i.Holders[0].Note == "new" })
	}
	if t.caps.Ops.Has(driver.OpQueue) {
		r := t.request()
		r.Note = g.Note // nothing but the owner changes
		t.queued(a, r)
		w := t.waitFor(a, r)
		t.release(a, g)
		t.hinted(b, hints, "P7: a watch was not told of a hand-off", func(i driver.Info) bool { return len(i.Holders) == 1 && len(i.Waiters) == 0 })
		g = t.renew(a, t.granted(w, t.poll, "P7: a waiter was not granted the released name"))
	}
	if t.caps.Ops.Has(driver.OpDowngrade) && t.caps.Shared {
		g = t.downgrade(a, g)
		t.hinted(b, hints, "P7: a watch was not told of a downgrade", func(i driver.Info) bool { return i.Holders[0].Mode == driver.Shared })
	}
	t.release(a, g)
	t.hinted(b, hints, "P7: a watch was not told of a release", driver.Info.Idle)
	next := t.take(b, t.request()) // a client's own too
	t.hinted(b, hints, "P7: a watch was not told of its own client's hold", func(i driver.Info) bool { return len(i.Holders) == 1 })
	if t.caps.Ops.Has(driver.OpBreak) && t.caps.Fencing {
		t.breakHold(a, next)
		t.hinted(b, hints, "P7: a watch was not told of a break", driver.Info.Idle)
	}
}

func watchEnds(t *trial) {
	d := t.open()
	ctx, cancel := context.WithCancel(t.ctx)
	hints := t.watch(ctx, d)
	cancel()
	timer := time.NewTimer(t.slack)
	defer timer.Stop()
	for {
		select {
		case _, more := <-hints:
			if !more {
				return
			}
		case <-timer.C:
			t.Fatalf("P9: the channel of a watch was not closed after its context had ended")
		}
	}
}

// watchQuiet: an inspection changes nothing. Suppose that it made a hint: a watcher that
// inspects the name at every hint would cause the next hint itself, without end.
func watchQuiet(t *trial) {
	a, b := t.open(), t.open()
	hints := t.watch(t.ctx, b)
	g := t.take(a, t.request())
	t.hinted(b, hints, "P7: a watch was not told of a new holder", func(i driver.Info) bool { return len(i.Holders) == 1 })
	const inspections = 20
	told := 0
	for range inspections {
		t.inspect(b)
		select {
		case <-hints:
			told++
		case <-time.After(t.tick()):
		}
	}
	if told > inspections/2 {
		t.Errorf("P9: of %d inspections of a name that did not change, %d were told as changes",
			inspections, told)
	}
	t.release(a, g)
}
