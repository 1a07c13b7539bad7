package drivertest

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var watches = needs{can: opWatch | opOperator}

var watchCases = []testCase{
	{name: "tells of every change", need: watches, run: watchTells},
	{name: "ends with its context", need: watches, run: watchEnds},
	{name: "does not wake itself", need: watches, run: watchQuiet},
}

func (t *trial) watch(ctx context.Context, d driver.Driver) <-chan struct{} {
	t.Helper()
	hints, err := wrap.Forward{Driver: d}.Watch(ctx, t.name)
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
	if t.can.has(opQueue) {
		r := t.request()
		r.Note = g.Note // nothing but the owner changes
		t.queued(a, r)
		w := t.waitFor(a, r)
		t.release(a, g)
		t.hinted(b, hints, "P7: a watch was not told of a hand-off", func(i driver.Info) bool { return len(i.Holders) == 1 && len(i.Waiters) == 0 })
		g = t.renew(a, t.granted(w, t.poll, "P7: a waiter was not granted the released name"))
	}
	if t.can.has(opDowngrade) && t.caps.Shared {
		g = t.downgrade(a, g)
		t.hinted(b, hints, "P7: a watch was not told of a downgrade", func(i driver.Info) bool { return i.Holders[0].Mode == driver.Shared })
	}
	t.release(a, g)
	t.hinted(b, hints, "P7: a watch was not told of a release", driver.Info.Idle)
	next := t.take(b, t.request()) // a client's own too
	t.hinted(b, hints, "P7: a watch was not told of its own client's hold", func(i driver.Info) bool { return len(i.Holders) == 1 })
	if t.can.has(opOperator) && t.caps.Fencing {
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
