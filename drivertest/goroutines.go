package drivertest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// goroutinesCases count the goroutines of the process, so no other case may run beside them.
var goroutinesCases = []testCase{
	{name: "do not grow with holds", serial: true, run: holdsAndGoroutines},
	{name: "do not grow with waiters", need: queues, serial: true, run: waitersAndGoroutines},
}

// How many holds, or waiters, there are at the first count and at the second. A driver may
// need goroutines for its connections, but not one for each hold.
const (
	few  = 8
	many = few + 32
)

// unchanged fails the test if the number of goroutines, without the test's own, has grown by
// more than one for every second hold or waiter from few to many.
func (t *trial) unchanged(what string, before, own int) {
	t.Helper()
	time.Sleep(t.tick()) // let goroutines start that are about to
	more := 0
	for end, fewer := time.Now().Add(t.slack), 0; fewer > 0 || time.Now().Before(end); {
		if more = goroutines() - before - own; more >= (many-few)/2 {
			fewer = 0
		} else if fewer++; fewer == 5 { // in a row: on a busy machine some may have been about to start
			return
		}
	}
	t.Errorf("P9: %d more %s are %d more goroutines", many-few, what, more)
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

// begun waits until all have been told to wait, which a busy machine takes its time for, and have begun to.
func (t *trial) begun(all []*waiting) {
	for end := time.Now().Add(t.slack); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(all, func(w *waiting) bool { return w.gap.Load() == 0 }) {
			break
		}
	}
	time.Sleep(t.tick())
}

func holdsAndGoroutines(t *trial) {
	d := t.open()
	before := 0
	var grants []driver.Grant
	for i := range many {
		if i == few {
			before = goroutines()
		}
		grants = append(grants, t.take(d, t.elsewhere()))
	}
	t.unchanged("holds", before, 0)
	for i, err := range d.Release(t.ctx, grants) {
		if err != nil && t.clock.Now() < grants[i].Since.Add(grants[i].Valid) {
			t.Errorf("P4: a release in a batch failed: %v", err)
		}
	}
}

// waitersAndGoroutines: all waiters take their places before the first begins to wait, and
// all stop waiting before the first withdraws. In a store that has one writer at a time they
// would delay each other otherwise.
func waitersAndGoroutines(t *trial) {
	a, b := t.open(), t.open()
	var requests []driver.Request
	for range many {
		r := t.elsewhere()
		t.take(a, r)
		r.Owner = newOwner()
		t.queued(b, r)
		requests = append(requests, r)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer cancel()
	before := 0
	var all []*waiting
	for i, r := range requests {
		if i == few {
			t.begun(all)
			before = goroutines()
		}
		w := &waiting{}
		all = append(all, w)
		waiters.Go(func() { t.await(ctx, b, r, w) })
	}
	t.begun(all)
	t.unchanged("waiters", before, many-few)
}
