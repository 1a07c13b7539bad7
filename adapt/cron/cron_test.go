//go:build soak

package cron

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/memlock"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/test/ticktest"
)

func TestMain(m *testing.M) { ticktest.Main(m, schedule) }

func TestEachInstantRunsOnce(t *testing.T) {
	ticktest.Run(t, ticktest.Plan{
		Store: "file://" + t.TempDir(), Jobs: 5, Ticks: testserver.Long(5, 20), Every: 500 * time.Millisecond,
	})
}

// every has the instants of a plan: a calendar with ticks of less than a second.
type every ticktest.Plan

func (e every) Next(t time.Time) time.Time {
	if t.Before(e.Start) {
		return e.Start
	}
	return e.Start.Add((t.Sub(e.Start)/e.Every + 1) * e.Every)
}

// ahead is a schedule as a scheduler sees it whose clock is the plan's. Cron always reads the
// host's clock, and sleeps until the instant that the schedule says.
type ahead struct {
	cron.Schedule
	plan ticktest.Plan
}

func (a ahead) Next(t time.Time) time.Time {
	return a.Schedule.Next(t.Add(a.plan.Ahead)).Add(-a.plan.Ahead)
}

// schedule is one of the processes.
func schedule(p ticktest.Plan) error {
	locks, err := holdfast.Open(context.Background(), p.Store)
	if err != nil {
		return err
	}
	defer locks.Close()
	c := cron.New()
	for n := range p.Jobs {
		id, err := Schedule(c, locks, fmt.Sprintf("job/%d", n), every(p), nil, func(context.Context) error {
			p.Ran(n)
			return nil
		})
		if err != nil {
			return err
		}
		entry := c.Entry(id)
		j := entry.Job.(*job)
		j.now = p.Now
		c.Remove(id)
		c.Schedule(ahead{entry.Schedule, p}, j)
	}
	c.Start()
	p.Wait()
	<-c.Stop().Done()
	return nil
}

// TestLate: a process that comes to an instant late does not run it.
func TestLate(t *testing.T) {
	locks, err := holdfast.Open(t.Context(), "mem://"+t.Name())
	testserver.Must(t, err)
	defer locks.Close()
	ran := 0
	errBad := errors.New("bad")
	var told []error
	o := &Options{
		Lock:   holdfast.Options{MinHold: time.Minute},
		Failed: func(_ time.Time, err error) { told = append(told, err) },
	}
	c := cron.New()
	hourly, err := cron.ParseStandard("0 * * * *")
	testserver.Must(t, err)
	id, err := Schedule(c, locks, "job", hourly, o, func(context.Context) error { ran++; return errBad })
	testserver.Must(t, err)
	entry := c.Entry(id)
	now := time.Now()
	entry.Job.(*job).now = func() time.Time { return now }
	expect := func(after time.Duration, runs int, err error) {
		t.Helper()
		now = entry.Schedule.Next(now).Add(after)
		entry.Job.Run()
		if ran != runs || !errors.Is(told[len(told)-1], err) {
			t.Errorf("%v after the instant: ran %d times, told %v, want %d and %v", after, ran, told, runs, err)
		}
	}
	expect(29*time.Second, 1, errBad)
	expect(30*time.Second, 1, ErrLate)
	expect(0, 2, errBad)
	told = nil
	if entry.Job.Run(); ran != 2 || len(told) != 1 {
		t.Errorf("without an instant: ran %d times, told %v", ran, told)
	}
}

func TestInstants(t *testing.T) {
	start := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	var i instants
	s := i.watch(every{Start: start, Every: time.Minute})
	s.Next(start.Add(-time.Hour)) // start, which is missed: the scheduler was stopped
	s.Next(start)
	s.Next(start) // again: the scheduler has been started again
	s.Next(start.Add(time.Minute))
	for _, want := range []time.Duration{time.Minute, 0} {
		if got, ok := i.take(start.Add(90 * time.Second)); !ok || !got.Equal(start.Add(want)) {
			t.Errorf("take gives %v, %v, want %v", got, ok, start.Add(want))
		}
	}
	if got, ok := i.take(start.Add(90 * time.Second)); ok {
		t.Errorf("take gives %v, which is not due", got)
	}
	for n := range 2 * kept {
		s.Next(start.Add(time.Duration(n) * time.Minute))
	}
	if len(i.known) != kept {
		t.Errorf("%d instants are remembered, want %d", len(i.known), kept)
	}
}

func TestBadInput(t *testing.T) {
	ok := func(context.Context) error { return nil }
	daily, err := cron.ParseStandard("@daily")
	testserver.Must(t, err)
	c := cron.New()
	if _, err := Schedule(c, nil, "job", cron.Every(time.Minute), nil, ok); err == nil {
		t.Error("@every is accepted")
	}
	if _, err := Schedule(c, nil, "job", daily, nil, nil); err == nil {
		t.Error("no function is accepted")
	}
	o := &Options{Lock: holdfast.Options{MinHold: -1}}
	if _, err := Schedule(c, nil, "job", daily, o, ok); err == nil {
		t.Error("a negative minimum hold is accepted")
	}
	if _, err := Schedule(c, nil, "job", daily, nil, ok); err != nil || len(c.Entries()) != 1 {
		t.Errorf("a good job: %v, %d entries", err, len(c.Entries()))
	}
}
