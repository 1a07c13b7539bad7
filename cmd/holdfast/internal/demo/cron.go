package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
)

const (
	replicas = 3
	tick     = 500 * time.Millisecond // from one to the next
	skew     = 33 * time.Millisecond  // how late each replica's clock is, compared with the one before
	jobTakes = 5 * time.Millisecond   // much less than the clocks differ
	minHold  = 333 * time.Millisecond // longer than clocks differ, and shorter than a tick
)

// CronResult is the result of one way to run the job. It is the JSON form too.
type CronResult struct {
	Strategy string `json:"strategy"` // plain or min-hold
	What     string `json:"what"`
	Ticks    int    `json:"ticks"`
	Runs     int    `json:"runs"`   // of the job
	Once     int    `json:"once"`   // ticks at which it ran once
	Twice    int    `json:"twice"`  // ticks at which it ran more than once
	Missed   int    `json:"missed"` // ticks at which it did not run
}

// Cron runs the job that should run once per tick, first with a lock that is released when the job is done,
// then with one that stays closed for a while, and writes the results.
func Cron(ctx context.Context, o Options) error {
	return demonstrate(ctx, o, func(d *demonstration) (any, string, error) {
		results := []CronResult{
			{Strategy: "plain", What: "take the lock if it is free, run the job, release"},
			{Strategy: "min-hold", What: fmt.Sprintf("the same, but the name stays closed for %v, longer than clocks differ", minHold)},
		}
		for i, hold := range []time.Duration{0, minHold} {
			fmt.Fprintf(d.Progress, "%d of %d: %s, %d ticks\n", i+1, len(results), results[i].Strategy, d.Ticks)
			if err := d.cron(ctx, hold, &results[i]); err != nil {
				return nil, "", err
			}
		}
		return results, cronTable(results), nil
	})
}

// cron has the replicas run the job at all ticks, and counts the runs.
func (d *demonstration) cron(ctx context.Context, hold time.Duration, r *CronResult) (err error) {
	f, start := newFleet(ctx), time.Now().Add(time.Second) // by then all replicas are ready
	for i := 0; i < replicas && err == nil; i++ {
		late := time.Duration(i) * skew
		_, _, err = f.start(work{Store: d.Store, Cron: &replica{d.names + r.Strategy, start.Add(late), d.Ticks, hold}})
	}
	if err := f.wait(err); err != nil {
		return err
	}
	r.Ticks = d.Ticks
	for n := range d.Ticks {
		runs := f.lines[strconv.Itoa(n)]
		r.Runs += runs
		*[...]*int{&r.Missed, &r.Once, &r.Twice}[min(runs, 2)]++
	}
	return nil
}

// cronTable returns the results as a table, with a sentence below that sums them up.
func cronTable(results []CronResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A job of %v, once per tick of %v: %d replicas, each one's clock %v\nlater than the one's before.\n\n",
		jobTakes, tick, replicas, skew)
	b.WriteString("strategy  ticks  runs  once  more than once  missed\n")
	for _, r := range results {
		fmt.Fprintf(&b, "%-8s  %5d  %4d  %4d  %14d  %6d\n  %s\n", r.Strategy, r.Ticks, r.Runs, r.Once, r.Twice, r.Missed, r.What)
	}
	fmt.Fprintf(&b, "\nTicks at which the job ran more than once: %d, and %d with a minimum hold.\n", results[0].Twice, results[1].Twice)
	return b.String()
}

// replica is the work of a replica of the cron job.
type replica struct {
	Lock    string    // its name
	Start   time.Time // the first tick, by the replica's clock
	Ticks   int
	MinHold time.Duration
}

// run tries to run the job at each tick. The job writes the number of the tick.
func (r replica) run(ctx context.Context, locks *holdfast.Client) error {
	lock := locks.Mutex(r.Lock, &holdfast.Options{MinHold: r.MinHold})
	for n := range r.Ticks {
		time.Sleep(time.Until(r.Start.Add(time.Duration(n) * tick)))
		lease, err := lock.TryAcquire(ctx)
		if errors.Is(err, holdfast.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(n)
		time.Sleep(jobTakes)
		if err := lease.Release(); err != nil {
			return err
		}
	}
	return nil
}
