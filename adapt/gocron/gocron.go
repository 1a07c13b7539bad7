// Package gocron lets several processes share the jobs of a go-co-op/gocron scheduler: each tick of
// a job runs in one of them.
//
//	locker, err := hfgocron.NewLocker(locks, 20*time.Second, nil) // a job each minute or less often
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(cleanup), gocron.WithName("cleanup"))
//
// A Locker decides for each tick anew which process runs the job. An Elector lets one process run
// all jobs. Both keep a name closed for a minimum time, because the clocks of hosts differ: suppose
// that the job takes 10 ms, and that B's clock is 200 ms behind that of A. Without the minimum A has
// run the job and has released the lock when the tick begins on B, and B runs it again.
//
// The processes must tick at the same instants: use CronJob, or DurationJob with a start that is
// rounded (gocron.WithStartAt).
//
// Gocron has no way to tell a job that its lock was lost. A client's Events.Lost and logger say so,
// and a job that changes something outside can guard it: see package fence.
package gocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfastlock/holdfast"
)

// Locker is a gocron.Locker. The lock of a job has the job's name. Safe for concurrent use.
type Locker struct {
	client  *holdfast.Client
	options holdfast.Options
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker for gocron.WithDistributedLocker or WithDistributedJobLocker. It does
// no I/O.
//
// A job's name stays closed for minHold after a tick began. It must be longer than the clocks of
// the processes differ, late starts included, and shorter than the time between two ticks, or ticks
// are missed. The other options are those of the lock, nil for the defaults; their MinHold is not
// used. The error says that minHold is not positive.
func NewLocker(c *holdfast.Client, minHold time.Duration, o *holdfast.Options) (*Locker, error) {
	options, err := withMinHold(minHold, o)
	return &Locker{c, options}, err
}

func withMinHold(minHold time.Duration, o *holdfast.Options) (options holdfast.Options, err error) {
	if o != nil {
		options = *o
	}
	if minHold <= 0 {
		err = fmt.Errorf("gocron: the minimum hold is %v: it must be longer than the clocks of hosts differ", minHold)
	}
	options.MinHold = minHold
	return options, err
}

// Lock takes the lock of a job if it is free. Otherwise the error is holdfast.ErrHeld: another
// process has run this tick, or still runs the job. Any other error is the store's. With either,
// gocron does not run the job, and calls its AfterLockError listeners.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Mutex(key, &l.options).TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

// lock is the lease of one run.
type lock struct{ lease *holdfast.Lease }

// Unlock releases the lease. The name stays closed until the minimum hold is over.
func (l lock) Unlock(context.Context) error { return l.lease.Release() }

// ErrNotLeader is what an Elector answers in a process that does not lead.
var ErrNotLeader = errors.New("gocron: another process leads")
