// Package due is a priority queue of things by the instant at which they are
// due.
package due

import "github.com/holdfastlock/holdfast/driver"

// Entry is one thing's place in a queue. The zero value, with Value set, is in
// no queue. An Entry belongs to one Queue and must not be copied while queued.
type Entry[T any] struct {
	Value T
	at    driver.Instant
	pos   int32 // one more than its index in the heap; 0: not queued
	Mark  bool  // means nothing to the queue
}

// At returns the instant at which the entry was last set to be due.
func (e *Entry[T]) At() driver.Instant { return e.at }

// Queued reports whether the entry is in its queue.
func (e *Entry[T]) Queued() bool { return e.pos > 0 }

// Queue is a binary heap of entries, the earliest first. The zero value is
// empty. Not safe for concurrent use.
type Queue[T any] struct{ heap []*Entry[T] }

// Len returns the number of entries.
func (q *Queue[T]) Len() int { return len(q.heap) }

// Set queues the entry for an instant, or moves it there.
func (q *Queue[T]) Set(e *Entry[T], at driver.Instant) {
	e.at = at
	if e.pos == 0 {
		q.heap = append(q.heap, e)
		e.pos = int32(len(q.heap))
	}
	q.fix(int(e.pos) - 1)
}

// Drop takes the entry out; one that is not queued stays so.
func (q *Queue[T]) Drop(e *Entry[T]) {
	if e.pos == 0 {
		return
	}
	i, last := int(e.pos)-1, len(q.heap)-1
	q.swap(i, last)
	q.heap[last] = nil
	q.heap = q.heap[:last]
	e.pos = 0
	if i < last {
		q.fix(i)
	}
	if cap(q.heap) > 64 && len(q.heap) < cap(q.heap)/4 {
		// Ten thousand leases must not cost memory after they are gone (P9).
		q.heap = append(make([]*Entry[T], 0, cap(q.heap)/2), q.heap...)
	}
}

// First returns the entry that is due first, or nil.
func (q *Queue[T]) First() *Entry[T] {
	if len(q.heap) == 0 {
		return nil
	}
	return q.heap[0]
}

// All returns the entries in no order. The slice is the queue's own and holds
// until the queue is changed.
func (q *Queue[T]) All() []*Entry[T] { return q.heap }

func (q *Queue[T]) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].pos, q.heap[j].pos = int32(i+1), int32(j+1)
}

// fix moves the entry at i up or down to where it belongs.
func (q *Queue[T]) fix(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.heap[parent].at <= q.heap[i].at {
			break
		}
		q.swap(i, parent)
		i = parent
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.heap[child].at < q.heap[least].at {
				least = child
			}
		}
		if least == i {
			return
		}
		q.swap(i, least)
		i = least
	}
}
