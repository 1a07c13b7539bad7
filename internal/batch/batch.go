// Package batch plans work that is due at instants and goes out in batches, at
// most one at a time to each shard. It does no work itself: it says what is to
// be sent now, and is told when a batch is done.
package batch

import (
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// Entry is one thing's place in a plan. The zero value is in no plan. Its Mark is
// the plan's: it is parked, which is due, but its shard is busy.
type Entry = due.Entry

// Plan is a set of things. Not safe for concurrent use.
type Plan[T comparable] struct {
	queue due.Queue[T]
	entry func(T) *Entry
	shard func(T) string
	slack func(T) time.Duration
	busy  map[string][]T // the shards with a batch under way, and what waits for them
}

// Batch is what goes to one shard together.
type Batch[T any] struct {
	Shard string
	Items []T
}

// New returns an empty plan. The functions say where in a thing its entry is, to
// which shard it belongs, and how much sooner than due it may go to share a batch.
func New[T comparable](entry func(T) *Entry, shard func(T) string, slack func(T) time.Duration) *Plan[T] {
	return &Plan[T]{queue: due.New(entry), entry: entry, shard: shard, slack: slack, busy: map[string][]T{}}
}

// Set plans the thing for an instant, instead of what was planned before.
func (p *Plan[T]) Set(t T, at driver.Instant) {
	p.unpark(t)
	p.queue.Set(t, at)
}

// Drop takes the thing out of the plan.
func (p *Plan[T]) Drop(t T) {
	p.unpark(t)
	p.queue.Drop(t)
}

func (p *Plan[T]) unpark(t T) {
	e := p.entry(t)
	if !e.Mark {
		return
	}
	e.Mark = false
	for shard, parked := range p.busy { // few; what it is parked for may be in another shard by now
		if i := slices.Index(parked, t); i >= 0 {
			p.busy[shard] = slices.Delete(parked, i, i+1)
		}
	}
}

// Next returns the instant at which Take has something to do, if there is one.
// What waits for a busy shard is not counted: Done makes it due again.
func (p *Plan[T]) Next() (driver.Instant, bool) {
	_, at, ok := p.queue.First()
	return at, ok
}

// Len returns the number of things in the plan.
func (p *Plan[T]) Len() int {
	n := p.queue.Len()
	for _, parked := range p.busy {
		n += len(parked)
	}
	return n
}

// Take takes what is due out of the plan and returns it as one batch for each
// shard that has none under way. If there is any, what is due soon goes along
// as far as its slack allows, so that ten thousand leases taken one after the
// other are not renewed one after the other for ever.
func (p *Plan[T]) Take(now driver.Instant) []Batch[T] {
	var batches []Batch[T]
	index := map[string]int{}
	for t, at, ok := p.queue.First(); ok; t, at, ok = p.queue.First() {
		shard := p.shard(t)
		parked, busy := p.busy[shard]
		if at > now && (busy || len(batches) == 0 || at > now.Add(p.slack(t))) {
			// Not due. What is behind it is not due either, and may go along
			// another time; to look further would cost more than it saves.
			break
		}
		p.queue.Drop(t)
		if busy {
			p.busy[shard] = append(parked, t)
			p.entry(t).Mark = true
			continue
		}
		i, ok := index[shard]
		if !ok {
			i = len(batches)
			index[shard] = i
			batches = append(batches, Batch[T]{Shard: shard})
		}
		batches[i].Items = append(batches[i].Items, t)
	}
	for _, b := range batches {
		p.busy[b.Shard] = nil
	}
	return batches
}

// Done says that the shard's batch has come back, or will not. What waited for
// it is due again.
func (p *Plan[T]) Done(shard string) {
	parked := p.busy[shard]
	delete(p.busy, shard)
	for _, t := range parked {
		e := p.entry(t)
		e.Mark = false
		p.queue.Set(t, e.At())
	}
}
