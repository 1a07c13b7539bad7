// Package batch plans work that is due at instants and goes out in batches, one after the other in
// each lane: a shard and a class of urgency. It does no work itself: it says what to send now and
// within what time, and is told the result.
package batch

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/due"
)

// Entry is where one thing stands in a plan. The zero value is in no plan. Its Mark belongs to the
// plan.
type Entry = due.Entry

// The marks of entries.
const (
	unmarked uint8 = iota
	parked         // due, and in the queue of its lane, which is busy
	taken          // out of the plan, between Due and Send
)

// Rules are what a plan must know of its things.
type Rules[T comparable] struct {
	// Entry returns the entry inside a thing.
	Entry func(T) *Entry
	// Slack returns how much sooner than due the thing may go out to share a batch.
	Slack func(T) time.Duration
	// Left returns how much time is left to get the thing done.
	Left func(T, driver.Instant) time.Duration
	// Longest is the most time that a batch has.
	Longest time.Duration
	// Most is how many things go out together, as long as none is late: twice as many for each slack by which the
	// first is. So a hundred thousand neither keep others from the plan for long, nor from the store, and a store that
	// answers slowly gets more at a time. 0: any number.
	Most int
}

// Plan is a set of things. Not safe for concurrent use.
type Plan[T comparable] struct {
	rules Rules[T]
	queue due.Queue[T]
	lanes map[Lane]*lane[T] // that are busy, or in which things wait
}

// Lane is where batches go one after the other. Things with much time left do not share a lane with
// urgent ones. So neither waits for the other's batch, and an urgent thing does not cut the time of
// a batch with many others in it.
type Lane struct {
	Shard string
	Class int // see Plan.class; the smaller the more urgent
}

// lane is the state of a lane.
type lane[T comparable] struct {
	parked due.Queue[T]   // things that wait for the next batch
	busy   bool           // a batch is under way
	until  driver.Instant // the end of its time
}

// compareLanes orders lanes by shard, the most urgent first.
func compareLanes(a, b Lane) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Class, b.Class))
}

// Batch is things that go out together.
type Batch[T any] struct {
	Lane
	Items  []T           // the most urgent first
	Within time.Duration // the time for it: at most half of what is left to any thing in it
}

// New returns an empty plan.
func New[T comparable](rules Rules[T]) *Plan[T] {
	return &Plan[T]{rules: rules, queue: due.New(rules.Entry), lanes: map[Lane]*lane[T]{}}
}

// Set plans the thing for an instant. It replaces an earlier plan for the thing.
func (p *Plan[T]) Set(t T, at driver.Instant) {
	p.unmark(t)
	p.queue.Set(t, at)
}

// Drop removes the thing from the plan.
func (p *Plan[T]) Drop(t T) {
	p.unmark(t)
	p.queue.Drop(t)
}

// unmark clears the thing's mark, and removes the thing from the lane in which it is parked.
func (p *Plan[T]) unmark(t T) {
	e := p.rules.Entry(t)
	if e.Mark == parked {
		for _, l := range p.lanes { // few
			if l.parked.Has(t) {
				l.parked.Drop(t)
				break
			}
		}
	}
	e.Mark = unmarked
}

// Next returns the instant at which Due has something to do, if there is one. It ignores things
// that wait for a busy lane.
func (p *Plan[T]) Next() (driver.Instant, bool) {
	_, at, ok := p.queue.First()
	for _, l := range p.lanes { // few
		if _, parked, some := l.parked.First(); some && !l.busy && (!ok || parked < at) {
			at, ok = parked, true
		}
	}
	return at, ok
}

// Len returns the number of things in the plan.
func (p *Plan[T]) Len() int {
	n := p.queue.Len()
	for _, l := range p.lanes {
		n += l.parked.Len()
	}
	return n
}

// Due removes and returns what is due; Send must follow. Things that are due soon come along as far
// as their slack allows, together with things as urgent as they are. So ten thousand leases that
// were taken one after the other are not renewed one after the other for ever.
func (p *Plan[T]) Due(now driver.Instant) (things []T) {
	for at, l := range p.lanes {
		if !l.busy {
			p.unpark(at, l, now)
		}
	}
	classes := map[int]bool{} // of the things that are due
	most := p.most(&p.queue, now)
	take := func(t T) {
		p.queue.Drop(t)
		p.rules.Entry(t).Mark = taken
		things = append(things, t)
	}
	for t, at, ok := p.queue.First(); ok && at <= now && len(things) < most; t, at, ok = p.queue.First() {
		classes[p.class(p.rules.Left(t, now))] = true
		take(t)
	}
	var skipped []T // nothing as urgent is due
	// Skipping more things than are due would cost more than it saves.
	for t, at, ok := p.queue.First(); ok && len(skipped) < len(things) && len(things) < most; t, at, ok = p.queue.First() {
		if !classes[p.class(p.rules.Left(t, now))] {
			p.queue.Drop(t)
			skipped = append(skipped, t)
			continue
		}
		if at > now.Add(p.rules.Slack(t)) {
			break
		}
		take(t)
	}
	for _, t := range skipped {
		p.queue.Set(t, p.rules.Entry(t).At())
	}
	return things
}

// most returns how many things of a queue may go out together.
func (p *Plan[T]) most(q *due.Queue[T], now driver.Instant) int {
	t, at, ok := q.First()
	if !ok || p.rules.Most == 0 {
		return q.Len()
	}
	late := max(0, now.Sub(at)) / max(p.rules.Slack(t), time.Millisecond)
	return p.rules.Most << min(late, 20)
}

// unpark puts things that wait in a lane that is not busy back into the plan, as many as may go out together.
func (p *Plan[T]) unpark(at Lane, l *lane[T], now driver.Instant) {
	for n := p.most(&l.parked, now); n > 0 && l.parked.Len() > 0; n-- {
		t, due, _ := l.parked.First()
		l.parked.Drop(t)
		p.rules.Entry(t).Mark = unmarked
		p.queue.Set(t, due)
	}
	if l.parked.Len() == 0 {
		delete(p.lanes, at)
	}
}

// Send returns things that came from Due as batches, at most one for each lane; shard returns the
// shard of the i-th. A thing whose lane is busy waits for the lane's next batch. Things that were set or
// dropped since Due are left out.
func (p *Plan[T]) Send(now driver.Instant, things []T, shard func(i int) string) (batches []Batch[T]) {
	groups := map[Lane][]T{}
	for i, t := range things {
		e := p.rules.Entry(t)
		if e.Mark != taken {
			continue
		}
		e.Mark = unmarked
		at := p.laneFor(shard(i), p.rules.Left(t, now), now)
		groups[at] = append(groups[at], t)
	}
	for _, at := range slices.SortedFunc(maps.Keys(groups), compareLanes) {
		if l := p.lanes[at]; l != nil && l.busy {
			for _, t := range groups[at] {
				l.parked.Set(t, p.rules.Entry(t).At())
				p.rules.Entry(t).Mark = parked
			}
		} else {
			batches = append(batches, p.fill(at, groups[at], now))
		}
	}
	return batches
}

// fill makes a batch of things, and the lane busy.
func (p *Plan[T]) fill(at Lane, things []T, now driver.Instant) Batch[T] {
	slices.SortStableFunc(things, func(a, b T) int { return cmp.Compare(p.rules.Left(a, now), p.rules.Left(b, now)) })
	within := min(p.rules.Longest, ceiling(at.Class)/2, p.rules.Left(things[0], now)/2)
	l := p.lanes[at]
	if l == nil {
		l = &lane[T]{parked: due.New(p.rules.Entry)}
		p.lanes[at] = l
	}
	l.busy, l.until = true, now.Add(within)
	return Batch[T]{at, things, within}
}

// laneFor returns the lane of a thing with that much time left.
func (p *Plan[T]) laneFor(shard string, left time.Duration, now driver.Instant) Lane {
	at := Lane{shard, p.class(left)}
	if l := p.lanes[at]; at.Class > 0 && l != nil && l.until > now.Add(left/2) {
		// Too little time is left to wait for that batch. A batch in the next lane takes at most
		// half of it.
		at.Class--
	}
	return at
}

// class returns the number of the interval in which the time left lies: in class n it is at least
// half of ceiling(n) and less than ceiling(n). From twice the longest time of a batch upwards there
// is one class.
func (p *Plan[T]) class(left time.Duration) int {
	left = min(max(left, 0), 2*p.rules.Longest)
	return bits.Len64(uint64(left / time.Millisecond))
}

// ceiling is the end of a class.
func ceiling(class int) time.Duration { return time.Millisecond << class }

// Done tells that a batch has come back. Things that waited for its lane are due again.
func (p *Plan[T]) Done(b Batch[T]) {
	l := p.lanes[b.Lane]
	if l.busy, l.until = false, 0; l.parked.Len() == 0 { // laneFor does not look at an old end
		delete(p.lanes, b.Lane)
	}
}

// Clone returns a plan of the copies that f returns of the things. Their entries must be copies
// too.
func (p *Plan[T]) Clone(f func(T) T) *Plan[T] {
	c := &Plan[T]{rules: p.rules, queue: p.queue.Clone(f), lanes: make(map[Lane]*lane[T], len(p.lanes))}
	for at, l := range p.lanes {
		c.lanes[at] = &lane[T]{l.parked.Clone(f), l.busy, l.until}
	}
	return c
}

// AppendState appends to b what distinguishes this state of the plan from others; thing does the
// same for a thing.
func (p *Plan[T]) AppendState(b []byte, now driver.Instant, thing func([]byte, T) []byte) []byte {
	queue := func(q *due.Queue[T]) {
		things := make([]string, 0, q.Len())
		for _, t := range q.All() {
			text := thing(nil, t)
			text = binary.AppendVarint(text, int64(p.rules.Entry(t).At()-now))
			things = append(things, string(text))
		}
		slices.Sort(things)
		for _, text := range things {
			b = append(append(b, text...), ';')
		}
		b = append(b, '|')
	}
	queue(&p.queue)
	for _, at := range slices.SortedFunc(maps.Keys(p.lanes), compareLanes) {
		l := p.lanes[at]
		b = binary.AppendVarint(append(b, at.Shard...), int64(at.Class))
		b = binary.AppendVarint(b, int64(max(0, l.until-now)))
		queue(&l.parked)
	}
	return b
}
