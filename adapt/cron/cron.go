// Package cron lets several processes share the jobs of a robfig/cron scheduler: each scheduled
// instant of a job runs in one of them.
//
//	c := cron.New()
//	nightly, err := cron.ParseStandard("0 3 * * *")
//	_, err = hfcron.Schedule(c, locks, "reports/nightly", nightly, nil, report)
//	c.Start()
//
// The lock's name is that of the job and the instant: reports/nightly/2026-03-01T03:00:00Z. So it
// does not matter how long a job takes, how often it runs, or whether the instants of other runs
// overlap. After a run the name stays closed (Options.MinHold), because the clocks of hosts differ:
// a process whose clock is behind comes to the same instant later, and must not run it again.
//
// The processes must compute the same instants: use a schedule of the calendar, in the same time
// zone, and not "@every".
package cron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfastlock/holdfast"
)

// DefaultMinHold is for how long the name of an instant stays closed. See Options.MinHold.
const DefaultMinHold = 10 * time.Minute

// Options configure a job. The zero value means the defaults.
type Options struct {
	// Lock has the options of the lock. Its MinHold, DefaultMinHold if it is 0, is for how long the
	// name of an instant stays closed. A run that would begin later than half of that after its
	// instant is not begun: so an instant runs once as long as clocks differ by less than the other
	// half, even if a host was suspended at the instant.
	Lock holdfast.Options
	// Context is what the jobs' contexts are made from. Nil: context.Background.
	Context context.Context
	// Failed is told of a run that did not begin, because the store cannot be reached (the error
	// is the store's) or because it is too late (ErrLate), and of the error of a run, a lost
	// lock's *holdfast.LostError among them. It is not told that another process runs the instant.
	// It is called by the job's goroutine. Nil: slog.Default gets the errors.
	Failed func(instant time.Time, err error)
}

// ErrLate is the error of a run that was not begun because its instant is over for too long.
var ErrLate = errors.New("cron: too late: the instant may have run elsewhere")

// Schedule adds a job to c. At each instant of the schedule at most one of the processes that use
// the same store and name runs fn. Its context ends when the lock is lost. An error of fn, or a
// loss, goes to Options.Failed: the instant is not run again.
//
// An error says that the schedule is a constant delay ("@every"), that the minimum hold is
// negative, or that fn is nil. Schedule does no I/O.
func Schedule(
	c *cron.Cron, locks *holdfast.Client, name string, s cron.Schedule, o *Options,
	fn func(context.Context) error,
) (cron.EntryID, error) {
	j := &job{locks: locks, name: name, fn: fn, now: time.Now}
	if o != nil {
		j.options = *o
	}
	if j.options.Lock.MinHold == 0 {
		j.options.Lock.MinHold = DefaultMinHold
	}
	if j.options.Context == nil {
		j.options.Context = context.Background()
	}
	switch s.(type) {
	case cron.ConstantDelaySchedule, *cron.ConstantDelaySchedule:
		return 0, fmt.Errorf("cron: job %q: a constant delay (@every) has other instants on each host; "+
			`use a schedule of the calendar, such as "*/5 * * * *"`, name)
	}
	switch {
	case fn == nil:
		return 0, fmt.Errorf("cron: job %q: the function is nil", name)
	case j.options.Lock.MinHold < 0:
		return 0, fmt.Errorf("cron: job %q: the minimum hold is %v", name, j.options.Lock.MinHold)
	}
	return c.Schedule(j.watch(s), j), nil
}

// job is one job of one process.
type job struct {
	locks   *holdfast.Client
	name    string
	options Options
	fn      func(context.Context) error
	now     func() time.Time
	instants
}

// late is how long after its instant a run may begin.
func (j *job) late() time.Duration { return j.options.Lock.MinHold / 2 }

// Run is called by the scheduler at an instant.
func (j *job) Run() {
	instant, ok := j.take(j.now())
	if !ok {
		j.failed(j.now(), errors.New("cron: the clock was set back: no instant is due"))
		return
	}
	if err := j.run(instant); err != nil {
		j.failed(instant, err)
	}
}

// run runs an instant, unless another process does, which is no error.
func (j *job) run(instant time.Time) (err error) {
	left := j.late() - j.now().Sub(instant)
	if left <= 0 {
		return ErrLate
	}
	lease, err := j.try(instant, left)
	if errors.Is(err, holdfast.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := lease.WithContext(j.options.Context)
	defer cancel()
	defer func() { err = errors.Join(err, lease.Release()) }()
	return j.fn(ctx)
}

// try takes the lock of an instant, within the time that is left.
func (j *job) try(instant time.Time, left time.Duration) (*holdfast.Lease, error) {
	ctx, cancel := context.WithTimeout(j.options.Context, left)
	defer cancel()
	name := j.name + "/" + instant.UTC().Format(time.RFC3339Nano)
	return j.locks.Mutex(name, &j.options.Lock).TryAcquire(ctx)
}

func (j *job) failed(instant time.Time, err error) {
	if j.options.Failed != nil {
		j.options.Failed(instant, err)
		return
	}
	slog.Error("scheduled job", "job", j.name, "instant", instant, "err", err)
}

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
