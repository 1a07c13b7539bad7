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
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
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

// Elector is a gocron.Elector: of all processes that have one for the same name, one leads, and
// runs all jobs. Safe for concurrent use.
type Elector struct {
	minHold time.Duration
	cancel  context.CancelFunc
	done    chan struct{} // closed when the campaign has ended

	mu      sync.Mutex
	leader  *election.Leadership // nil: none yet
	lastYes time.Time            // when IsLeader was last true
	err     error                // why the campaign has ended
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector for gocron.WithDistributedElector, and begins to stand for election
// to the office of that name. The value is shown to others, as with election.Campaign. Close it
// after the scheduler was shut down.
//
// An office that is closed stays taken until minHold after this process last ran a job, so that a
// successor whose clock is behind does not run the same tick again. If the leader crashes, its
// successor is elected after the TTL, or the minimum hold, whichever is later. The other options
// are those of the election, nil for the defaults. The error says that minHold is not positive.
func NewElector(
	c *holdfast.Client, name, value string, minHold time.Duration, o *holdfast.Options,
) (*Elector, error) {
	options, err := withMinHold(minHold, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{minHold: minHold, cancel: cancel, done: make(chan struct{})}
	go e.campaign(ctx, election.New(c, name, &options), value)
	return e, nil
}

// campaign stands for election, again after each leadership that was lost.
func (e *Elector) campaign(ctx context.Context, office *election.Election, value string) {
	defer close(e.done)
	for pause := time.Duration(0); ctx.Err() == nil; pause = time.Second {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		leader, err := office.Campaign(ctx, value)
		e.mu.Lock()
		e.leader, e.err = leader, err
		e.mu.Unlock()
		if err != nil {
			if errors.Is(err, holdfast.ErrClosed) {
				return
			}
			continue // the store cannot be reached
		}
		select {
		case <-leader.Done():
			_ = leader.Resign() // lost: Events.Lost has told
		case <-ctx.Done():
			return // Close resigns
		}
	}
}

// IsLeader returns nil if this process leads, and otherwise ErrNotLeader, joined with the store's
// last error if there is one.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader == nil || e.leader.Err() != nil {
		return errors.Join(ErrNotLeader, e.err)
	}
	e.lastYes = time.Now()
	return nil
}

// Close gives the office up, as soon as the minimum hold after the last job is over. It returns the
// error of the resignation: a *holdfast.LostError if the leadership was lost.
func (e *Elector) Close() error {
	e.cancel()
	<-e.done
	e.mu.Lock()
	leader, open := e.leader, e.lastYes.Add(e.minHold)
	e.leader, e.err = nil, nil
	e.mu.Unlock()
	if leader == nil {
		return nil
	}
	select {
	case <-time.After(time.Until(open)):
	case <-leader.Done():
	}
	return leader.Resign()
}
