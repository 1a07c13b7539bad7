package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
)

// CronOptions are those of the cron demo. The zero value of each field is its
// default.
type CronOptions struct {
	// Store, JSON, Out, Progress and Width are as in Options.
	Store         string
	JSON          bool
	Out, Progress io.Writer
	Width         int

	Replicas int           // processes, at least 2. 0: 3
	Ticks    int           // 0: 12
	Tick     time.Duration // from one to the next, at least 100 ms. 0: 500 ms
	// Skew is how far apart the replicas' clocks are: the second's is late by
	// it, the third's by twice that. 0: a fifteenth of Tick.
	Skew time.Duration
	// MinHold is how long the name stays closed. It must be longer than all skew
	// together, and shorter than Tick. 0: two thirds of Tick.
	MinHold time.Duration
}

// CronResult is what a way to run the job came to. It is the JSON form too,
// whose keys do not change.
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

// jobTakes is how long the job runs: much less than clocks differ.
const jobTakes = 5 * time.Millisecond

func (o *CronOptions) settle() error {
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
		return badOptions("MinHold is %v: it must be longer than %v, by which clocks differ, and shorter than Tick, %v", o.MinHold, apart, o.Tick)
	}
	return nil
}

// Cron shows the job that is to run once per tick, with a lock that is released
// when the job is done, and with one that stays closed for a while. The rest is
// as with Run.
func Cron(ctx context.Context, o CronOptions) (err error) {
	if err := o.settle(); err != nil {
		return err
	}
	d, err := Options{Store: o.Store, Out: o.Out, Progress: o.Progress, Width: o.Width}.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	var results []CronResult
	bar := newProgress(d.Progress, 2*o.Ticks)
	defer bar.end()
	for i, r := range []CronResult{
		{Strategy: "plain", What: "take the lock if it is free, run the job, release: a replica whose clock is late finds it free again"},
		{Strategy: "min-hold", What: fmt.Sprintf("the same, but the name stays closed for %v, longer than clocks differ", o.MinHold)},
	} {
		hold := o.MinHold
		if r.Strategy == "plain" {
			hold = 0
		}
		ticked := func(tick int) { bar.show(float64(i*o.Ticks+tick), "%s, tick %d of %d", r.Strategy, tick, o.Ticks) }
		if err := d.replicas(ctx, o, hold, &r, ticked); err != nil {
			return because(ctx, err)
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

// replicas runs the job at all ticks, and counts.
func (d *demonstration) replicas(ctx context.Context, o CronOptions, hold time.Duration, r *CronResult, ticked func(int)) (err error) {
	d.runs++
	shop, remove, err := d.openPlace(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	configs := make([]config, o.Replicas)
	for i := range configs {
		configs[i] = config{Job: "cron", Database: shop.place, Store: d.Store, Name: d.name(r.Strategy), Replica: i}
	}
	f, err := launch(ctx, configs)
	if err != nil {
		return err
	}
	start := time.Now().Add(100 * time.Millisecond) // when all know of it
	for i := range configs {
		err = errors.Join(err, f.send(i, schedule{
			Start: start, Tick: o.Tick, Ticks: o.Ticks, Skew: o.Skew * time.Duration(i), MinHold: hold,
		}))
	}
	for over := 0; over < o.Replicas && err == nil; {
		var m message
		if m, err = f.next(ctx); m.Tick == o.Ticks {
			over++
		}
		if m.from == 0 {
			ticked(m.Tick)
		}
	}
	if err != nil {
		f.kill()
		return err
	}
	r.Seconds = math.Round(time.Since(start).Seconds()*1000) / 1000
	if err := f.leave(ctx); err != nil {
		return err
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
	b.WriteString(wrap("", fmt.Sprintf("A job of %v, once per tick of %v: %d replicas, each one's clock %v later than the one's before.",
		jobTakes, o.Tick, o.Replicas, o.Skew), width))
	b.WriteString("\n")
	writeTable(&b, cronColumns, results, width, func(r CronResult) string { return r.What })
	return write(d.Out, b.String())
}

// cron is a replica: it tries to run the job at each tick, by its own clock.
func (s *service) cron(ctx context.Context, cancel context.CancelFunc, in *json.Decoder) error {
	var plan schedule
	if err := in.Decode(&plan); err != nil {
		if err == io.EOF {
			return nil
		}
		return fmt.Errorf("demo: reading the schedule: %w", err)
	}
	left := make(chan struct{})
	go func() {
		for in.Decode(&json.RawMessage{}) == nil {
		} // its end is the order to leave
		cancel()
		close(left)
	}()
	lock := s.locks.Mutex(s.config.Name, &holdfast.Options{MinHold: plan.MinHold})
	for tick := range plan.Ticks {
		at := plan.Start.Add(time.Duration(tick)*plan.Tick + plan.Skew)
		if err := rest(ctx, time.Until(at)); err != nil {
			return nil // told to leave
		}
		if err := s.tick(ctx, lock, tick); err != nil && ctx.Err() == nil {
			return err
		}
		s.say(reply{Tick: tick + 1})
	}
	<-left
	return nil
}

// tick runs the job, unless another replica is at it.
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

// job is what is to be done once per tick: it leaves a trace.
func (s *service) job(ctx context.Context, tick int) error {
	if err := s.shop.ran(ctx, tick, s.config.Replica); err != nil {
		return err
	}
	return rest(ctx, jobTakes)
}
