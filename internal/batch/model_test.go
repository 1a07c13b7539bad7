package batch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/explore"
)

// This file explores a Plan: entries are set, moved and dropped at any moment,
// batches go out to shards and come back in any order or never. Instants are
// counted from now in ticks of one nanosecond, so that the states are finitely
// many although time never ends.

const modelEntries = 4

// setup is what a model is explored for.
type setup struct {
	shards [modelEntries]string        // of the entries
	slack  [modelEntries]time.Duration // of the entries
	period driver.Instant              // how far ahead an entry is set
	take   func(*Plan[int]) []Batch[int]
	done   func(*Plan[int], string)
}

// world is a plan, and what must be true of it by the books.
type world struct {
	plan    *Plan[int]
	entries *[modelEntries]Entry // the plan knows them
	planned [modelEntries]bool
	out     [modelEntries]bool // in a batch under way
	away    []string           // shards with a batch under way, sorted
	err     error              // what the last step found
}

func (s *setup) start() world {
	w := s.empty(world{})
	for i := range w.entries {
		w.plan.Set(i, 1)
		w.planned[i] = true
	}
	return w
}

// empty returns a world with an empty plan.
func (s *setup) empty(w world) world {
	entries := &[modelEntries]Entry{}
	w.entries = entries
	w.plan = New(
		func(i int) *Entry { return &entries[i] },
		func(i int) string { return s.shards[i] },
		func(i int) time.Duration { return s.slack[i] })
	return w
}

// clone copies a world, with its time later by a tick or not.
func (s *setup) clone(w world, tick driver.Instant) world {
	c := s.empty(w)
	c.away = slices.Clone(w.away)
	// In the order of a heap every entry stays where it is put. What is
	// overdue is due: how long for makes no difference.
	for _, i := range w.plan.queue.All() {
		c.plan.Set(i, max(w.entries[i].At()-tick, 0))
	}
	for shard, parked := range w.plan.busy {
		c.plan.busy[shard] = nil
		for _, i := range parked {
			c.plan.Set(i, max(w.entries[i].At()-tick, 0)) // for its At
			c.plan.queue.Drop(i)
			c.entries[i].Mark = true
			c.plan.busy[shard] = append(c.plan.busy[shard], i)
		}
	}
	return c
}

// key is a world as text.
func (s *setup) key(w world) string {
	var b []byte
	for _, i := range w.plan.queue.All() {
		b = append(b, byte('0'+i), byte('a'+w.entries[i].At()))
	}
	for _, shard := range w.away {
		b = append(append(b, '/'), shard...)
		for _, i := range w.plan.busy[shard] {
			b = append(b, byte('0'+i))
		}
	}
	for i := range w.entries {
		b = append(b, '0'+b2i(w.planned[i])+2*b2i(w.out[i])+4*b2i(w.entries[i].Mark))
	}
	if w.err != nil {
		b = append(b, w.err.Error()...)
	}
	return string(b)
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (s *setup) model() explore.Model[world, string] {
	return explore.Model[world, string]{Start: s.start(), Key: s.key, Next: s.next, Check: s.check}
}

func (s *setup) next(w world) (steps []explore.Step[world]) {
	add := func(name string, tick driver.Instant, change func(*world)) {
		to := s.clone(w, tick)
		change(&to)
		steps = append(steps, explore.Step[world]{Name: name, To: to})
	}
	add("a tick", 1, func(*world) {})
	add("take", 0, s.takes)
	for _, shard := range w.away {
		add("the batch to "+shard+" is back", 0, func(w *world) {
			// What came back is planned anew before the shard is free, as the
			// client does it.
			for i := range w.entries {
				if w.out[i] && s.shards[i] == shard {
					w.out[i], w.planned[i] = false, true
					w.plan.Set(i, s.period)
				}
			}
			s.done(w.plan, shard)
			w.away = slices.DeleteFunc(w.away, func(in string) bool { return in == shard })
		})
	}
	for _, i := range []int{0, modelEntries - 1} { // to meddle with these is enough
		n := strconv.Itoa(i)
		add("set "+n+" to be due", 0, func(w *world) {
			w.plan.Set(i, 0)
			w.planned[i] = true
		})
		add("set "+n+" for later", 0, func(w *world) {
			w.plan.Set(i, s.period)
			w.planned[i] = true
		})
		if w.planned[i] {
			add("drop "+n, 0, func(w *world) {
				w.plan.Drop(i)
				w.planned[i] = false
			})
		}
	}
	return steps
}

// takes lets the plan give out batches, and says what is wrong with them.
func (s *setup) takes(w *world) {
	before := s.clone(*w, 0)
	batches := s.take(w.plan)
	fail := func(format string, args ...any) {
		if w.err == nil {
			w.err = fmt.Errorf(format, args...)
		}
	}
	for _, b := range batches {
		if slices.Contains(w.away, b.Shard) {
			fail("two batches to one shard")
		}
		w.away = append(w.away, b.Shard)
		for _, i := range b.Items {
			e := before.entries[i]
			switch early := time.Duration(e.At()); {
			case s.shards[i] != b.Shard:
				fail("an entry in another shard's batch")
			case !before.planned[i]:
				fail("an entry that is not planned went out")
			case early > s.slack[i]:
				fail("an entry went out sooner than its slack allows")
			}
			w.planned[i], w.out[i] = false, true
		}
	}
	slices.Sort(w.away)
	idle := true
	for i, e := range before.entries {
		due := before.planned[i] && e.At() <= 0 && !slices.Contains(before.away, s.shards[i])
		if due && !w.out[i] {
			fail("what is due on a free shard was left behind")
		}
		idle = idle && !due
	}
	if idle && len(batches) > 0 {
		fail("a batch went out although nothing was due")
	}
	if at, ok := w.plan.Next(); ok && at <= 0 {
		fail("there is still something to take")
	}
}

// check looks at the books: every planned entry is in the plan once, and Next
// hides nothing.
func (s *setup) check(w world) error {
	if w.err != nil {
		return w.err
	}
	var in [modelEntries]int
	for _, i := range w.plan.queue.All() {
		in[i]++
	}
	for shard, parked := range w.plan.busy {
		for _, i := range parked {
			in[i]++
			if !w.entries[i].Mark || s.shards[i] != shard {
				return errors.New("an entry waits for a shard and does not know it")
			}
		}
		if !slices.Contains(w.away, shard) {
			return errors.New("a shard is busy that has no batch")
		}
	}
	total := 0
	next, ok := w.plan.Next()
	for i, e := range w.entries {
		switch {
		case w.planned[i] && in[i] == 0:
			return errors.New("a planned entry is lost")
		case in[i] > 1 || !w.planned[i] && in[i] > 0:
			return errors.New("an entry is in the plan too often")
		case w.planned[i] && !slices.Contains(w.away, s.shards[i]) && (!ok || next > e.At()):
			return errors.New("Next hides an entry whose shard is free")
		}
		total += in[i]
	}
	if w.plan.Len() != total {
		return errors.New("Len counts wrong")
	}
	return nil
}

// setups are what every model is explored for.
func setups() map[string]setup {
	s := setup{
		shards: [...]string{"A", "A", "B", "B"},
		period: 3,
		take:   func(p *Plan[int]) []Batch[int] { return p.Take(0) },
		done:   (*Plan[int]).Done,
	}
	slack, three := s, s
	slack.slack = [...]time.Duration{2, 0, 1, 2}
	three.shards, three.slack = [...]string{"A", "B", "C", "C"}, [...]time.Duration{1, 1, 1, 1}
	return map[string]setup{"two shards": s, "two shards with slack": slack, "three shards": three}
}

func TestModel(t *testing.T) {
	for name, s := range setups() {
		t.Run(name, func(t *testing.T) {
			s.model().Holds(t, 100_000)
			s.model().Walks(t, 10, 500)
		})
	}
}

// TestModelFinds: the checks find each way in which a plan could be wrong.
func TestModelFinds(t *testing.T) {
	for name, c := range map[string]struct {
		want   string
		broken func(*setup)
	}{
		"what waits is forgotten": {"a planned entry is lost", func(s *setup) {
			s.done = func(p *Plan[int], shard string) {
				for _, i := range p.busy[shard] {
					p.entry(i).Mark = false
				}
				delete(p.busy, shard)
			}
		}},
		"busy shards are ignored": {"two batches to one shard", func(s *setup) {
			s.take = func(p *Plan[int]) []Batch[int] {
				clear(p.busy)
				return p.Take(0)
			}
		}},
		"what waits stays due": {"there is still something to take", func(s *setup) {
			s.take = func(p *Plan[int]) []Batch[int] {
				batches := p.Take(0)
				for _, parked := range p.busy {
					for _, i := range parked {
						p.Set(i, 0)
					}
				}
				return batches
			}
		}},
		"a dead shard delays the others": {"left behind", func(s *setup) {
			s.take = func(p *Plan[int]) []Batch[int] {
				if len(p.busy) == 0 {
					return p.Take(0)
				}
				for i, at, ok := p.queue.First(); ok && at <= 0; i, at, ok = p.queue.First() {
					p.Set(i, 1)
				}
				return nil
			}
		}},
		"taken whenever soon": {"although nothing was due", func(s *setup) {
			s.slack = [...]time.Duration{2, 2, 2, 2}
			s.take = func(p *Plan[int]) []Batch[int] { return p.Take(1) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := setups()["two shards with slack"]
			c.broken(&s)
			s.model().Breaks(t, 100_000, c.want)
		})
	}
}
