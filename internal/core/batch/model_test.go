package batch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/due"
	"github.com/holdfastlock/holdfast/internal/test/explore"
)

// This file explores a Plan: entries are set, moved and dropped at any moment, also between Due and
// Send, and batches go out and come back in any order or never. Instants are counted from now, so
// that there are finitely many states although time never ends.

const (
	modelEntries = 3
	tick         = time.Millisecond
	period       = driver.Instant(2 * tick) // how far ahead an entry is set
)

// setup is one case for which the model is explored.
type setup struct {
	shards  [modelEntries]string        // of the entries
	slack   [modelEntries]time.Duration // of the entries
	left    [modelEntries]time.Duration // of the entries, whenever they go out
	longest time.Duration
	most    int  // go out together
	apart   bool // anything may happen between Due and Send
	due     func(*Plan[int]) []int
	send    func(*Plan[int], []int, func(int) string) []Batch[int]
	done    func(*Plan[int], Batch[int])
}

// world is a plan, and the test's own records of what must be true of it.
type world struct {
	plan    *Plan[int]
	entries *[modelEntries]Entry // the plan knows them
	planned [modelEntries]bool
	taken   []int        // by Due, and not sent yet
	away    []Batch[int] // under way
	err     error        // what the last step found
}

func (s *setup) start() world {
	w := s.empty(world{})
	for i := range w.entries {
		w.plan.Set(i, driver.Instant(tick))
		w.planned[i] = true
	}
	return w
}

// empty returns a world with an empty plan.
func (s *setup) empty(w world) world {
	entries := &[modelEntries]Entry{}
	w.entries = entries
	w.plan = New(Rules[int]{
		Entry:   func(i int) *Entry { return &entries[i] },
		Slack:   func(i int) time.Duration { return s.slack[i] },
		Left:    func(i int, _ driver.Instant) time.Duration { return s.left[i] },
		Longest: s.longest,
		Most:    s.most,
	})
	return w
}

// clone copies a world, with its time later by so much.
func (s *setup) clone(w world, by time.Duration) world {
	c := s.empty(w)
	c.away, c.taken = slices.Clone(w.away), slices.Clone(w.taken)
	// In the order of a heap every entry stays where it is put. How long an entry is overdue
	// makes no difference.
	for i := range w.entries {
		c.plan.queue.Set(i, max(w.entries[i].At().Add(-by), 0)) // for its At
		c.plan.queue.Drop(i)
		c.entries[i].Mark = w.entries[i].Mark
	}
	for _, i := range w.plan.queue.All() {
		c.plan.queue.Set(i, c.entries[i].At())
	}
	for at, from := range w.plan.lanes {
		to := &lane[int]{parked: due.New(c.plan.rules.Entry), busy: from.busy, until: max(from.until.Add(-by), 0)}
		for _, i := range from.parked.All() {
			to.parked.Set(i, c.entries[i].At())
		}
		c.plan.lanes[at] = to
	}
	return c
}

// key returns a world as text.
func (s *setup) key(w world) string {
	var b []byte
	at := func(at driver.Instant) byte { return byte('a' + at/driver.Instant(tick)) }
	for _, i := range w.plan.queue.All() {
		b = append(b, byte('0'+i), at(w.entries[i].At()))
	}
	for _, in := range slices.SortedFunc(maps.Keys(w.plan.lanes), compareLanes) {
		l := w.plan.lanes[in]
		b = append(append(b, '/'), in.Shard...)
		b = append(b, byte('0'+in.Class))
		b = strconv.AppendInt(strconv.AppendBool(b, l.busy), int64(l.until), 36)
		for _, i := range l.parked.All() {
			b = append(b, byte('0'+i), at(w.entries[i].At()))
		}
	}
	for _, batch := range w.away {
		b = append(append(b, '!'), batch.Shard...)
		b = append(b, byte('0'+batch.Class))
		for _, i := range batch.Items {
			b = append(b, byte('0'+i))
		}
	}
	b = append(b, '?')
	for _, i := range w.taken {
		b = append(b, byte('0'+i))
	}
	for i := range w.entries {
		b = append(b, '0'+2*w.entries[i].Mark)
		if w.planned[i] {
			b = append(b, '+')
		}
		if w.entries[i].Mark == taken {
			b = append(b, at(w.entries[i].At()))
		}
	}
	if w.err != nil {
		b = append(b, w.err.Error()...)
	}
	return string(b)
}

func (s *setup) model() explore.Model[world, string] {
	return explore.Model[world, string]{Start: s.start(), Key: s.key, Next: s.next, Check: s.check}
}

func (s *setup) next(w world) (steps []explore.Step[world]) {
	add := func(name string, by time.Duration, change func(*world)) {
		to := s.clone(w, by)
		change(&to)
		steps = append(steps, explore.Step[world]{Name: name, To: to})
	}
	add("a tick", tick, func(*world) {})
	switch {
	case !s.apart:
		add("what is due is taken and sent", 0, func(w *world) {
			s.takes(w)
			s.sends(w)
		})
	case len(w.taken) == 0:
		add("what is due is taken", 0, s.takes)
	default:
		add("it is sent", 0, s.sends)
	}
	for n, b := range w.away {
		add(fmt.Sprintf("batch %v to %v is back", b.Items, b.Lane), 0, func(w *world) {
			// Things that came back are set again before the lane is free, as in the client.
			for _, i := range b.Items {
				w.planned[i] = true
				w.plan.Set(i, period)
			}
			w.away = slices.Delete(w.away, n, n+1)
			s.done(w.plan, b)
		})
	}
	for _, i := range []int{0, modelEntries - 1} { // changing these is enough
		n := strconv.Itoa(i)
		add("set "+n+" to be due", 0, func(w *world) {
			w.plan.Set(i, 0)
			w.planned[i] = true
		})
		add("set "+n+" for later", 0, func(w *world) {
			w.plan.Set(i, period)
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

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// takes calls Due, and notes what is wrong with the result.
func (s *setup) takes(w *world) {
	before := s.clone(*w, 0)
	w.taken = s.due(w.plan)
	for _, i := range w.taken {
		switch {
		case !before.planned[i]:
			w.fail("an entry that is not planned went out")
		case time.Duration(before.entries[i].At()) > s.slack[i]:
			w.fail("an entry went out sooner than its slack allows")
		}
	}
	if len(w.taken) > 0 && !slices.ContainsFunc(w.taken, func(i int) bool { return before.entries[i].At() <= 0 }) {
		w.fail("entries went out although nothing was due")
	}
	if at, ok := w.plan.Next(); ok && at <= 0 && (s.most == 0 || len(w.taken) < s.most) {
		w.fail("there is still something to take")
	}
}

// sends calls Send, and notes what is wrong with the batches.
func (s *setup) sends(w *world) {
	before, sent := s.clone(*w, 0), w.taken
	batches := s.send(w.plan, sent, func(n int) string { return s.shards[sent[n]] })
	w.taken = nil
	out := map[int]bool{}
	for _, b := range batches {
		if slices.ContainsFunc(w.away, func(a Batch[int]) bool { return a.Lane == b.Lane }) {
			w.fail("two batches in one lane")
		}
		if s.most > 0 && len(b.Items) > s.most {
			w.fail("more go out together than may")
		}
		w.away = append(w.away, b)
		for _, i := range b.Items {
			switch {
			case s.shards[i] != b.Shard:
				w.fail("an entry in another shard's batch")
			case before.entries[i].Mark != taken:
				w.fail("an entry went out that was set or dropped meanwhile")
			case b.Within > s.left[i]/2:
				w.fail("a batch has more than half of the time that an entry has left")
			case b.Within < min(s.longest, s.left[i]/2)/2:
				w.fail("a batch's time is cut by more urgent entries")
			}
			w.planned[i], out[i] = false, true
		}
	}
	slices.SortFunc(w.away, func(a, b Batch[int]) int { return compareLanes(a.Lane, b.Lane) })
	for _, i := range sent {
		if before.entries[i].Mark == taken && before.entries[i].At() <= 0 && !out[i] {
			s.behind(w, i)
		}
	}
}

// behind returns what is wrong with an entry that is due and has not gone out.
func (s *setup) behind(w *world, i int) {
	for at, l := range w.plan.lanes {
		if !l.parked.Has(i) {
			continue
		}
		if time.Duration(l.until) > s.left[i]/2 {
			w.fail("an entry waits in lane %v for longer than half of the time that it has", at)
		}
		return
	}
	w.fail("what is due was left behind")
}

// check checks that every planned entry is in the plan once, and that Next ignores none.
func (s *setup) check(w world) error {
	if w.err != nil {
		return w.err
	}
	var in, waits [modelEntries]int
	for _, i := range w.plan.queue.All() {
		in[i]++
	}
	for at, l := range w.plan.lanes {
		for _, i := range l.parked.All() {
			in[i]++
			waits[i]++
			if w.entries[i].Mark != parked || s.shards[i] != at.Shard {
				return errors.New("an entry waits in a lane and does not know it")
			}
		}
		if l.busy != slices.ContainsFunc(w.away, func(b Batch[int]) bool { return b.Lane == at }) {
			return errors.New("a lane is busy without a batch")
		}
		for _, i := range l.parked.All() {
			if next, ok := w.plan.Next(); !l.busy && (!ok || next > w.entries[i].At()) {
				return errors.New("Next hides an entry that waits in a lane")
			}
		}
	}
	total := 0
	next, ok := w.plan.Next()
	for i, e := range w.entries {
		total += in[i]
		if e.Mark == taken {
			in[i]++
		}
		switch {
		case w.planned[i] && in[i] == 0:
			return errors.New("a planned entry is lost")
		case in[i] > 1 || !w.planned[i] && in[i] > 0:
			return errors.New("an entry is in the plan too often")
		case w.planned[i] && e.Mark == unmarked && (!ok || next > e.At()):
			return errors.New("Next hides an entry")
		}
	}
	if w.plan.Len() != total {
		return errors.New("Len counts wrong")
	}
	return nil
}

// setups are the cases for which every model is explored.
func setups() map[string]setup {
	const ms = time.Millisecond
	s := setup{
		shards:  [...]string{"A", "A", "B"},
		left:    [...]time.Duration{8 * ms, 8 * ms, 8 * ms},
		longest: 2 * ms,
		due:     func(p *Plan[int]) []int { return p.Due(0) },
		send:    func(p *Plan[int], things []int, shard func(int) string) []Batch[int] { return p.Send(0, things, shard) },
		done:    (*Plan[int]).Done,
	}
	apart, slack, classes, few := s, s, s, s
	few.most, few.shards = 1, [...]string{"A", "A", "A"}
	apart.apart = true
	slack.slack = [...]time.Duration{2 * ms, 0, ms}
	classes.shards, classes.left = [...]string{"A", "A", "A"}, [...]time.Duration{8 * ms, 3 * ms, ms}
	return map[string]setup{"two shards": s, "apart": apart, "two shards with slack": slack, "classes": classes, "one at a time": few}
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
		setup, want string
		broken      func(*setup)
	}{
		"what waits is forgotten": {"two shards with slack", "a planned entry is lost", func(s *setup) {
			done := s.done
			s.done = func(p *Plan[int], b Batch[int]) {
				for _, i := range slices.Clone(p.lanes[b.Lane].parked.All()) {
					p.Drop(i)
				}
				done(p, b)
			}
		}},
		"busy lanes are ignored": {"two shards with slack", "two batches in one lane", func(s *setup) {
			send := s.send
			s.send = func(p *Plan[int], things []int, shard func(int) string) []Batch[int] {
				for _, i := range things {
					delete(p.lanes, Lane{s.shards[i], p.class(s.left[i])})
				}
				return send(p, things, shard)
			}
		}},
		"taken whenever soon": {"two shards with slack", "although nothing was due", func(s *setup) {
			s.slack = [...]time.Duration{2 * tick, 2 * tick, 2 * tick}
			s.due = func(p *Plan[int]) []int { return p.Due(driver.Instant(tick)) }
		}},
		"what was dropped meanwhile goes out": {"apart", "set or dropped meanwhile", func(s *setup) {
			send := s.send
			s.send = func(p *Plan[int], things []int, shard func(int) string) []Batch[int] {
				for _, i := range things {
					p.queue.Drop(i)
					p.rules.Entry(i).Mark = taken
				}
				return send(p, things, shard)
			}
		}},
		"one class": {"classes", "cut by more urgent entries", func(s *setup) {
			s.send = func(p *Plan[int], things []int, shard func(int) string) []Batch[int] {
				batches := p.Send(0, things, shard)
				for i := range batches {
					batches[i].Within = tick / 4
				}
				return batches
			}
		}},
		"an urgent entry waits for a long batch": {"classes", "for longer than half of the time", func(s *setup) {
			send := s.send
			s.send = func(p *Plan[int], things []int, shard func(int) string) []Batch[int] {
				batches := send(p, things, shard)
				for _, b := range batches {
					p.lanes[b.Lane].until = driver.Instant(20 * tick)
				}
				return batches
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := setups()[c.setup]
			c.broken(&s)
			s.model().Breaks(t, 100_000, c.want)
		})
	}
}
