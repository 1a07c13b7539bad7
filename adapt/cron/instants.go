package cron

import (
	"slices"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// instants remembers which instants the scheduler was told to run at, because it does not tell a
// job for which instant it runs.
type instants struct {
	mu    sync.Mutex
	known []time.Time // and not yet run, in order
}

// kept bounds how many instants are remembered.
const kept = 64

// watch returns the schedule, and remembers what it says.
func (i *instants) watch(s cron.Schedule) cron.Schedule { return watched{s, i} }

type watched struct {
	cron.Schedule
	instants *instants
}

func (w watched) Next(t time.Time) time.Time {
	next := w.Schedule.Next(t)
	i := w.instants
	i.mu.Lock()
	defer i.mu.Unlock()
	if at, found := slices.BinarySearchFunc(i.known, next, time.Time.Compare); !found && !next.IsZero() {
		i.known = slices.Insert(i.known, at, next)
	}
	if len(i.known) > kept {
		i.known = i.known[1:]
	}
	return next
}

// take returns the latest instant that is due and has not been taken. Two runs that
// begin late, in the other order, get an instant each.
func (i *instants) take(now time.Time) (instant time.Time, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, known := range slices.Backward(i.known) {
		if !known.After(now) {
			i.known = slices.Delete(i.known, at, at+1)
			return known, true
		}
	}
	return time.Time{}, false
}
