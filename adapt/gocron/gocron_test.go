//go:build soak

package gocron

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/memlock"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/test/ticktest"
)

func TestMain(m *testing.M) { ticktest.Main(m, schedule) }

// minHold is longer than the clocks differ, 400 ms, and shorter than the interval, 800 ms.
const minHold = 600 * time.Millisecond

func TestEachTickRunsOnce(t *testing.T) {
	ticktest.Run(t, ticktest.Plan{
		Store: "file://" + t.TempDir(), Jobs: 5, Ticks: testserver.Long(5, 20), Every: 800 * time.Millisecond,
	})
}

// ahead is a clock that is ahead of the host's.
type ahead struct {
	clockwork.Clock
	plan ticktest.Plan
}

func (c ahead) Now() time.Time                  { return c.plan.Now() }
func (c ahead) Since(t time.Time) time.Duration { return c.plan.Now().Sub(t) }
func (c ahead) Until(t time.Time) time.Duration { return t.Sub(c.plan.Now()) }

// schedule is one of the processes.
func schedule(p ticktest.Plan) error {
	locks, err := holdfast.Open(context.Background(), p.Store)
	if err != nil {
		return err
	}
	defer locks.Close()
	locker, err := NewLocker(locks, minHold, nil)
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithClock(ahead{clockwork.NewRealClock(), p}),
		gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	for job := range p.Jobs {
		_, err := s.NewJob(gocron.DurationJob(p.Every), gocron.NewTask(func() { p.Ran(job) }),
			gocron.WithName(fmt.Sprintf("job/%d", job)),
			gocron.WithStartAt(gocron.WithStartDateTime(p.Start)))
		if err != nil {
			return err
		}
	}
	s.Start()
	p.Wait()
	return s.Shutdown()
}

func TestMinimumHold(t *testing.T) {
	locks := open(t)
	for _, bad := range []time.Duration{0, -time.Second} {
		if _, err := NewLocker(locks, bad, nil); err == nil {
			t.Errorf("a locker with a minimum hold of %v is accepted", bad)
		}
		if _, err := NewElector(locks, "office", "", bad, nil); err == nil {
			t.Errorf("an elector with a minimum hold of %v is accepted", bad)
		}
	}
	locker, err := NewLocker(locks, time.Hour, &holdfast.Options{Note: "a"})
	testserver.Must(t, err)
	held, err := locker.Lock(t.Context(), "job")
	testserver.Must(t, err)
	testserver.Must(t, held.Unlock(t.Context()))
	if _, err := locker.Lock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("after a run the job's lock gives %v, want ErrHeld", err)
	}
}

func TestElector(t *testing.T) {
	locks := open(t)
	var electors [2]*Elector
	for i := range electors {
		var err error
		if electors[i], err = NewElector(locks, "office", fmt.Sprint(i), minHold, nil); err != nil {
			t.Fatal(err)
		}
	}
	first := waitForLeader(t, electors[:])
	other := electors[1-first]
	if err := other.IsLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the process that does not lead is told %v", err)
	}
	testserver.Must(t, electors[first].IsLeader(t.Context()))
	ran := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- electors[first].Close() }()
	waitForLeader(t, []*Elector{other})
	if after := time.Since(ran); after < minHold-50*time.Millisecond {
		t.Errorf("the successor leads %v after the last job, want %v at least", after, minHold)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := electors[first].IsLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("after Close: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// waitForLeader returns the index of the first of them that leads.
func waitForLeader(t *testing.T, electors []*Elector) int {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, e := range electors {
			if e.IsLeader(t.Context()) == nil {
				return i
			}
		}
	}
	t.Fatal("nobody leads")
	return 0
}

func open(t *testing.T) *holdfast.Client {
	locks, err := holdfast.Open(t.Context(), "mem://"+t.Name())
	testserver.Must(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}
