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

// Entry is one thing's place in a plan. The zero value, with Value set, is in
// no plan. Its Mark is the plan's: it is parked, which is due, but its shard is busy.
type Entry[T any] = due.Entry[T]

// Plan is a set of entries. Not safe for concurrent use.
type Plan[T any] struct {
	queue due.Queue[T]
	shard func(T) string
	slack func(T) time.Duration
	busy  map[string][]*Entry[T] // the shards with a batch under way, and the entries that wait for them
}

// Batch is what goes to one shard together.
type Batch[T any] struct {
	Shard string
	Items []T
}

// New returns an empty plan. The functions say to which shard a thing belongs,
// and how much sooner than due it may go to share a batch.
func New[T any](shard func(T) string, slack func(T) time.Duration) *Plan[T] {
	return &Plan[T]{shard: shard, slack: slack, busy: map[string][]*Entry[T]{}}
}

// Set plans the entry for an instant, instead of what was planned before.
func (p *Plan[T]) Set(e *Entry[T], at driver.Instant) {
	p.unpark(e)
	p.queue.Set(e, at)
}

// Drop takes the entry out of the plan.
func (p *Plan[T]) Drop(e *Entry[T]) {
	p.unpark(e)
	p.queue.Drop(e)
}

func (p *Plan[T]) unpark(e *Entry[T]) {
	if !e.Mark {
		return
	}
	e.Mark = false
	for shard, parked := range p.busy { // few; what it is parked for may be in another shard by now
		if i := slices.Index(parked, e); i >= 0 {
			p.busy[shard] = slices.Delete(parked, i, i+1)
		}
	}
}

// Next returns the instant at which Take has something to do, if there is one.
// What waits for a busy shard is not counted: Done makes it due again.
func (p *Plan[T]) Next() (driver.Instant, bool) {
	if e := p.queue.First(); e != nil {
		return e.At(), true
	}
	return 0, false
}

// Len returns the number of entries in the plan.
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
	for e := p.queue.First(); e != nil; e = p.queue.First() {
		shard := p.shard(e.Value)
		parked, busy := p.busy[shard]
		if e.At() > now && (busy || len(batches) == 0 || e.At() > now.Add(p.slack(e.Value))) {
			// Not due. What is behind it is not due either, and may go along
			// another time; to look further would cost more than it saves.
			break
		}
		p.queue.Drop(e)
		if busy {
			p.busy[shard] = append(parked, e)
			e.Mark = true
			continue
		}
		i, ok := index[shard]
		if !ok {
			i = len(batches)
			index[shard] = i
			batches = append(batches, Batch[T]{Shard: shard})
		}
		batches[i].Items = append(batches[i].Items, e.Value)
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
	for _, e := range parked {
		e.Mark = false
		p.queue.Set(e, e.At())
	}
}
