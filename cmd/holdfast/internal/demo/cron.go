package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
)

// CronOptions are the options of the cron demo. The zero value of each field is its default.
type CronOptions struct {
	// Store, JSON, Out, Progress and Width are as in Options.
	Store         string
	JSON          bool
	Out, Progress io.Writer
	Width         int

	Replicas int           // processes, at least 2. 0: 3
	Ticks    int           // 0: 12
	Tick     time.Duration // from one tick to the next, at least 100 ms. 0: 500 ms
	// Skew is how late each replica's clock is, compared with the one before. 0: a fifteenth of
	// Tick.
	Skew time.Duration
	// MinHold is how long the name stays closed. It must be longer than the difference between
	// the first and the last clock, and shorter than Tick. 0: two thirds of Tick.
	MinHold time.Duration
}

// CronResult is the result of one way to run the job. It is the JSON form too, whose keys do not
// change.
type CronResult struct {
	Strategy string  `json:"strategy"` // plain or min-hold
	What     string  `json:"what"`
	Replicas int     `json:"replicas"`
	Ticks    int     `json:"ticks"`
	Runs     int     `json:"runs"`   // of the job
	Once     int     `json:"once"`   // ticks at which it ran once
	Twice    int     `json:"twice"`  // ticks at which it ran more than once
	Missed   int     `json:"missed"` // ticks at which it did not run
	Seconds  float64 `json:"seconds"`
}

// jobTakes is how long the job runs: much less than the clocks differ.
const jobTakes = 5 * time.Millisecond

// setDefaults replaces zero values by the defaults, and checks all values.
func (o *CronOptions) setDefaults() error {
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	if o.Ticks == 0 {
		o.Ticks = 12
	}
	if o.Tick == 0 {
		o.Tick = 500 * time.Millisecond
	}
	if o.Skew == 0 {
		o.Skew = (o.Tick / 15).Round(time.Millisecond)
	}
	if o.MinHold == 0 {
		o.MinHold = (o.Tick * 2 / 3).Round(time.Millisecond)
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	apart := o.Skew * time.Duration(o.Replicas-1)
	switch {
	case o.Replicas < 2 || o.Replicas > maxServices:
		return badOptions("Replicas is %d: 2 to %d are allowed", o.Replicas, maxServices)
	case o.Ticks < 1 || o.Ticks > 1000:
		return badOptions("Ticks is %d: 1 to 1000 are allowed", o.Ticks)
	case o.Tick < 100*time.Millisecond:
		return badOptions("Tick is %v: it must be at least 100ms", o.Tick)
	case o.Skew <= jobTakes:
		return badOptions("Skew is %v: it must be longer than the job, %v", o.Skew, jobTakes)
	case o.MinHold <= apart || o.MinHold >= o.Tick:
		return badOptions("MinHold is %v: it must be longer than %v, by which clocks differ, "+
			"and shorter than Tick, %v", o.MinHold, apart, o.Tick)
	}
	return nil
}

// Cron runs the job that should run once per tick, first with a lock that is released when the job
// is done, then with one that stays closed for a while, and writes the results. When the context
// ends it ends as Run does.
func Cron(ctx context.Context, o CronOptions) (err error) {
	if err := o.setDefaults(); err != nil {
		return err
	}
	d, err := Options{Store: o.Store, Out: o.Out, Progress: o.Progress, Width: o.Width}.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cleanUp()) }()
	var results []CronResult
	bar := newProgress(d.Progress, 2*o.Ticks)
	defer bar.end()
	for i, r := range []CronResult{
		{Strategy: "plain", What: "take the lock if it is free, run the job, release: " +
			"a replica whose clock is late finds it free again"},
		{Strategy: "min-hold", What: fmt.Sprintf("the same, but the name stays closed for %v, "+
			"longer than clocks differ", o.MinHold)},
	} {
		hold := o.MinHold
		if r.Strategy == "plain" {
			hold = 0
		}
		ticked := func(tick int) {
			bar.show(float64(i*o.Ticks+tick), "%s, tick %d of %d", r.Strategy, tick, o.Ticks)
		}
		if err := d.replicas(ctx, o, hold, &r, ticked); err != nil {
			return causeOf(ctx, err)
		}
		bar.line("%s: once at %d of %d ticks", r.Strategy, r.Once, r.Ticks)
		results = append(results, r)
	}
	bar.end()
	if o.JSON {
		return writeJSON(o.Out, results)
	}
	return d.cronTable(o, results)
}

// schedule is when a replica runs the job, by its own clock.
type schedule struct {
	Replica int
	Tick    time.Duration // from one to the next
	Ticks   int
	Skew    time.Duration // how late the replica's clock is
	MinHold time.Duration
}

// replicas runs the job at all ticks, and counts.
func (d *demonstration) replicas(
	ctx context.Context, o CronOptions, hold time.Duration, r *CronResult, ticked func(int),
) (err error) {
	d.runs++
	shop, remove, err := d.openDatabase(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	configs := make([]config, o.Replicas)
	for i := range configs {
		configs[i] = config{Database: shop.url, Store: d.Store, Name: d.name(r.Strategy), Cron: &schedule{
			Replica: i, Tick: o.Tick, Ticks: o.Ticks, Skew: o.Skew * time.Duration(i), MinHold: hold,
		}}
	}
	f, err := launch(ctx, configs)
	if err != nil {
		return err
	}
	start := time.Now().Add(100 * time.Millisecond) // by then all replicas know of it
	for _, m := range f.members {
		m.order(start)
	}
	for l := range f.lines {
		if tick, err := strconv.Atoi(l.text); err == nil && l.from == 0 {
			ticked(tick)
		}
		r.Seconds = math.Round(time.Since(start).Seconds()*1000) / 1000
	}
	if f.err != nil {
		return f.err
	}
	r.Replicas, r.Ticks = o.Replicas, o.Ticks
	return r.count(ctx, shop)
}

// count counts what the jobs have written.
func (r *CronResult) count(ctx context.Context, s *shop) error {
	runs, err := s.ticks(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for tick := range r.Ticks {
		n := runs[tick]
		r.Runs += n
		switch n {
		case 0:
			r.Missed++
		case 1:
			r.Once++
		default:
			r.Twice++
		}
	}
	return nil
}

var cronColumns = []column[CronResult]{
	{"strategy", func(r CronResult) string { return r.Strategy }},
	{"ticks", func(r CronResult) string { return fmt.Sprint(r.Ticks) }},
	{"runs", func(r CronResult) string { return fmt.Sprint(r.Runs) }},
	{"once", func(r CronResult) string { return fmt.Sprint(r.Once) }},
	{"more than once", func(r CronResult) string { return fmt.Sprint(r.Twice) }},
	{"missed", func(r CronResult) string { return fmt.Sprint(r.Missed) }},
}

func (d *demonstration) cronTable(o CronOptions, results []CronResult) error {
	width := tableWidth(d.Width, d.Out)
	var b strings.Builder
	b.WriteString(wrap("", fmt.Sprintf("A job of %v, once per tick of %v: %d replicas, "+
		"each one's clock %v later than the one's before.",
		jobTakes, o.Tick, o.Replicas, o.Skew), width))
	b.WriteString("\n")
	writeTable(&b, cronColumns, results, width, func(r CronResult) string { return r.What })
	sentence, good := cronConclusion(results)
	b.WriteString("\n" + coloured(d.Out, wrap("", sentence, width), good))
	return write(d.Out, b.String())
}

// cronConclusion is conclusion for the cron job: plain lock beside minimum hold.
func cronConclusion(results []CronResult) (sentence string, good bool) {
	var parts []string
	for _, r := range results {
		parts = append(parts, fmt.Sprintf("%s: the job ran more than once at %d of %d ticks", r.Strategy, r.Twice, r.Ticks))
		good = r.Once == r.Ticks // the last one is the way to do it
	}
	return strings.Join(parts, "; ") + ".", good
}

// runTicks is the work of a replica: it tries to run the job at each tick, by its own clock.
func (s *service) runTicks(ctx context.Context, start time.Time) error {
	lock := s.locks.Mutex(s.Name, &holdfast.Options{MinHold: s.Cron.MinHold})
	for tick := range s.Cron.Ticks {
		at := start.Add(time.Duration(tick)*s.Cron.Tick + s.Cron.Skew)
		time.Sleep(time.Until(at))
		if err := s.tick(ctx, lock, tick); err != nil {
			return err
		}
		report(tick + 1)
	}
	return nil
}

// tick runs the job, unless another replica holds the lock.
func (s *service) tick(ctx context.Context, lock *holdfast.Lock, tick int) error {
	lease, err := lock.TryAcquire(ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(s.job(ctx, tick), lease.Release())
}

// job is the work that should be done once per tick: it records that it has run.
func (s *service) job(ctx context.Context, tick int) error {
	if err := s.shop.recordRun(ctx, tick, s.Cron.Replica); err != nil {
		return err
	}
	return sleep(ctx, jobTakes)
}
