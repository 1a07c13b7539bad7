package due_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/due"
)

// thing is a number with its place in a queue.
type thing struct {
	number int
	entry  due.Entry
}

// newThings returns an empty queue, and things for it.
func newThings(n int) (due.Queue[*thing], []*thing) {
	things := make([]*thing, n)
	for i := range things {
		things[i] = &thing{number: i}
	}
	return due.New(func(t *thing) *due.Entry { return &t.entry }), things
}

// TestAgainstSortedSlice does random things to a queue and to a slice that is sorted each time, and
// compares them.
func TestAgainstSortedSlice(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, things := newThings(40)
		at := map[int]driver.Instant{} // of those queued
		for n := range 1000 {
			i := random.IntN(len(things))
			if random.IntN(3) == 0 { // also of what is not queued
				q.Drop(things[i])
				delete(at, i)
				if all := q.All(); cap(all) > len(all) && all[:len(all)+1][len(all)] != nil {
					t.Error("P9: a dropped thing is kept alive")
				}
			} else {
				at[i] = driver.Instant(random.IntN(20))
				q.Set(things[i], at[i])
			}
			compare(t, &q, things, at)
			if t.Failed() {
				t.Fatalf("seed %d, operation %d", seed, n)
			}
		}
		drain(t, &q, at)
	}
}

// compare compares all that a queue returns.
func compare(t *testing.T, q *due.Queue[*thing], things []*thing, at map[int]driver.Instant) {
	t.Helper()
	if q.Len() != len(at) || len(q.All()) != len(at) {
		t.Errorf("%d things, and %d of them, want %d", q.Len(), len(q.All()), len(at))
	}
	for i, th := range things {
		want, queued := at[i]
		if th.entry.Queued() != queued || queued && th.entry.At() != want {
			t.Errorf("thing %d: queued %v at %v, want %v at %v",
				i, th.entry.Queued(), th.entry.At(), queued, want)
		}
	}
	first, due, ok := q.First()
	switch {
	case ok != (len(at) > 0):
		t.Errorf("the first of %d is %v", len(at), first)
	case ok:
		if want := at[first.number]; due != want {
			t.Errorf("First says %v, and the entry is due at %v", due, want)
		}
		for _, instant := range at {
			if instant < due {
				t.Errorf("the first is due at %v, another at %v", due, instant)
			}
		}
	}
}

// drain takes out the first again and again.
func drain(t *testing.T, q *due.Queue[*thing], at map[int]driver.Instant) {
	t.Helper()
	var want, got []driver.Instant
	for _, instant := range at {
		want = append(want, instant)
	}
	slices.Sort(want)
	for first, due, ok := q.First(); ok; first, due, ok = q.First() {
		got = append(got, due)
		q.Drop(first)
	}
	if !slices.Equal(got, want) {
		t.Errorf("drained %v, want %v", got, want)
	}
}

// TestShrinks: the memory for ten thousand things is freed when they are gone, in any order, and
// the things that stay are still in order (P9).
func TestShrinks(t *testing.T) {
	const many, few = 10_000, 20
	q, things := newThings(many)
	random := rand.New(rand.NewPCG(1, 0))
	order := random.Perm(many)
	for _, i := range order {
		q.Set(things[i], driver.Instant(i))
	}
	if first, at, _ := q.First(); first != things[0] {
		t.Fatalf("the first is due at %v", at)
	}
	at := map[int]driver.Instant{}
	for n, i := range random.Perm(many) {
		if n < many-few {
			q.Drop(things[i])
		} else {
			at[i] = driver.Instant(i)
		}
	}
	if c := cap(q.All()); c > 8*few {
		t.Errorf("room for %d is kept for %d", c, few)
	}
	compare(t, &q, things, at)
	drain(t, &q, at)
}
