// Package replay records what goes in and out of an engine in a real run, and feeds it to a new
// one.
package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
)

// Log is what went in and out of an engine in a real run.
type Log struct {
	config   engine.Config
	owners   []string        // that NewOwner returned
	pauses   []time.Duration // that Jitter returned
	steps    []logged
	handed   int // of owners, in a replay
	jittered int
	broken   map[string]bool // owners whose holds an operator has broken, which is the one exception of P1
}

// logged is one step.
type logged struct {
	event   engine.Event
	action  engine.Action
	effects []engine.Effect
}

// Record logs every step of an engine, which must not have made any.
func Record(e *engine.Engine) *Log {
	l := &Log{config: e.Config, broken: map[string]bool{}}
	e.NewOwner = func() string {
		l.owners = append(l.owners, l.config.NewOwner())
		return l.owners[len(l.owners)-1]
	}
	e.Jitter = func(d time.Duration) time.Duration {
		l.pauses = append(l.pauses, l.config.Jitter(d))
		return l.pauses[len(l.pauses)-1]
	}
	e.Trace = func(ev engine.Event, a engine.Action, effects []engine.Effect) {
		for owner, err := range ev.Losses {
			l.broken[owner] = l.broken[owner] || errors.Is(err, driver.ErrBroken)
		}
		l.steps = append(l.steps, logged{event: ev, action: a, effects: slices.Clone(effects)})
	}
	return l
}

// Len returns the number of steps.
func (l *Log) Len() int { return len(l.steps) }

// Replay feeds the events of the log to a new engine, and returns the first difference
// between what it says and what was said then, or the first state in which anything is
// wrong.
func (l *Log) Replay() error {
	r := &run{Log: l, callers: map[*engine.Caller]*engine.Caller{}, batches: map[*engine.Batch]*engine.Batch{}, due: map[*engine.Due]*engine.Due{}}
	c := l.config
	c.Trace = nil
	c.NewOwner = func() string { l.handed++; return l.owners[l.handed-1] }
	c.Jitter = func(time.Duration) time.Duration { l.jittered++; return l.pauses[l.jittered-1] }
	r.e = engine.New(c)
	for i := range l.steps {
		if err := r.step(&l.steps[i]); err != nil {
			return fmt.Errorf("step %d of %d, event %d: %w", i+1, len(l.steps), l.steps[i].event.Kind, err)
		}
	}
	return nil
}

// run is a log with a new engine, and what of its corresponds to what.
type run struct {
	*Log
	e       *engine.Engine
	callers map[*engine.Caller]*engine.Caller
	batches map[*engine.Batch]*engine.Batch
	due     map[*engine.Due]*engine.Due
}

func (r *run) caller(c *engine.Caller) *engine.Caller {
	if c == nil {
		return nil
	}
	if r.callers[c] == nil {
		r.callers[c] = c.Fresh()
	}
	return r.callers[c]
}

func (r *run) step(s *logged) error {
	ev := s.event
	ev.Caller, ev.Other = r.caller(ev.Caller), r.caller(ev.Other)
	ev.Batch, ev.Due = r.batches[ev.Batch], r.due[ev.Due]
	next := r.e.Step(&ev)
	if next.Do != s.action.Do || next.For != s.action.For || next.Grant != s.action.Grant || (next.Err == nil) != (s.action.Err == nil) {
		return fmt.Errorf("the caller does %+v, and did %+v", next, s.action)
	}
	effects := r.e.Effects()
	if len(effects) != len(s.effects) {
		return fmt.Errorf("there are %d effects, and were %d", len(effects), len(s.effects))
	}
	for i, f := range effects {
		was := s.effects[i]
		if f.Kind != was.Kind || f.Caller != r.caller(was.Caller) || (f.Err == nil) != (was.Err == nil) {
			return fmt.Errorf("effect %d is %+v, and was %+v", i, f, was)
		}
		if f.Batch != nil {
			if !slices.Equal(f.Batch.Grants, was.Batch.Grants) || f.Batch.Within != was.Batch.Within {
				return fmt.Errorf("the batch is %+v, and was %+v", f.Batch.Grants, was.Batch.Grants)
			}
			r.batches[was.Batch] = f.Batch
		}
		if f.Due != nil {
			r.due[was.Due] = f.Due
		}
	}
	if err := r.e.Check(); err != nil {
		return err
	}
	return r.exclusive(ev.Now)
}

// exclusive returns what is wrong with who trusts what (P1, P2).
func (r *run) exclusive(now driver.Instant) error {
	holders := map[string]*engine.Caller{}
	for _, c := range r.callers {
		if !c.Held() || c.Until() <= now || c.Mode() != driver.Exclusive || r.broken[r.e.Grant(c).Owner] {
			continue
		}
		if other := holders[c.Name()]; other != nil && other.Hold() != c.Hold() {
			return fmt.Errorf("P1: two callers trust %q", c.Name())
		}
		holders[c.Name()] = c
	}
	return nil
}
