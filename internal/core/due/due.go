// Package due is a priority queue of things by the instant at which they are due. A thing contains
// its entry, and the queue knows where in it: an entry with a pointer back would cost each of ten
// thousand leases a word for each queue (P9).
package due

import "github.com/holdfastlock/holdfast/driver"

// Entry is where one thing stands in a queue. The zero value is in no queue. An Entry is in one
// Queue at a time and must not be copied while queued.
type Entry struct {
	at   driver.Instant
	pos  int32 // one more than its index in the heap; 0: not queued
	Mark uint8 // means nothing to the queue
}

// At returns the instant for which the entry was last set.
func (e *Entry) At() driver.Instant { return e.at }

// Queued reports whether the entry is in its queue.
func (e *Entry) Queued() bool { return e.pos > 0 }

// Queue is a binary heap of things, the earliest first. See New. Not safe for
// concurrent use.
type Queue[T comparable] struct {
	heap  []T
	entry func(T) *Entry
}

// New returns an empty queue; entry returns the entry inside a thing.
func New[T comparable](entry func(T) *Entry) Queue[T] { return Queue[T]{entry: entry} }

// Len returns the number of things.
func (q *Queue[T]) Len() int { return len(q.heap) }

// Has reports whether the thing is in this queue, and not in another that uses the same entry.
func (q *Queue[T]) Has(t T) bool {
	i := int(q.entry(t).pos) - 1
	return i >= 0 && i < len(q.heap) && q.heap[i] == t
}

// Set queues the thing for an instant, or moves it there if it is queued already.
func (q *Queue[T]) Set(t T, at driver.Instant) {
	e := q.entry(t)
	e.at = at
	if e.pos == 0 {
		q.heap = append(q.heap, t)
		e.pos = int32(len(q.heap))
	}
	q.fix(int(e.pos) - 1)
}

// Drop removes the thing, if it is queued.
func (q *Queue[T]) Drop(t T) {
	e := q.entry(t)
	if e.pos == 0 {
		return
	}
	i, last := int(e.pos)-1, len(q.heap)-1
	q.swap(i, last)
	clear(q.heap[last:])
	q.heap = q.heap[:last]
	e.pos = 0
	if i < last {
		q.fix(i)
	}
	if cap(q.heap) > 64 && len(q.heap) < cap(q.heap)/4 {
		// Ten thousand leases must not cost memory after they are gone (P9).
		q.heap = append(make([]T, 0, cap(q.heap)/2), q.heap...)
	}
}

// First returns the thing that is due first and when it is due. It returns false if there is none.
func (q *Queue[T]) First() (t T, at driver.Instant, ok bool) {
	if len(q.heap) == 0 {
		return t, 0, false
	}
	return q.heap[0], q.at(0), true
}

// All returns the things in no order. The slice belongs to the queue and is valid until the queue
// changes.
func (q *Queue[T]) All() []T { return q.heap }

// Clone returns a queue of the copies that f returns of the things. Their entries must be copies
// too.
func (q *Queue[T]) Clone(f func(T) T) Queue[T] {
	c := Queue[T]{entry: q.entry, heap: make([]T, len(q.heap))}
	for i, t := range q.heap {
		c.heap[i] = f(t)
	}
	return c
}

// at returns the instant of the thing at index i of the heap.
func (q *Queue[T]) at(i int) driver.Instant { return q.entry(q.heap[i]).at }

func (q *Queue[T]) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.entry(q.heap[i]).pos, q.entry(q.heap[j]).pos = int32(i+1), int32(j+1)
}

// fix moves the thing at index i up or down to its place.
func (q *Queue[T]) fix(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.at(parent) <= q.at(i) {
			break
		}
		q.swap(i, parent)
		i = parent
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.at(child) < q.at(least) {
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
