package due_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/due"
)

// TestAgainstSortedSlice does random things to a queue and to a slice that is
// sorted each time, and compares.
func TestAgainstSortedSlice(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var q due.Queue[int]
		entries := make([]due.Entry[int], 40)
		at := map[int]driver.Instant{} // of those queued
		for i := range entries {
			entries[i].Value = i
		}
		for n := range 1000 {
			i := random.IntN(len(entries))
			if random.IntN(3) == 0 {
				q.Drop(&entries[i])
				delete(at, i)
			} else {
				at[i] = driver.Instant(random.IntN(20))
				q.Set(&entries[i], at[i])
			}
			compare(t, &q, entries, at)
			if t.Failed() {
				t.Fatalf("seed %d, operation %d", seed, n)
			}
		}
		drain(t, &q, at)
	}
}

// compare looks at everything that a queue tells.
func compare(t *testing.T, q *due.Queue[int], entries []due.Entry[int], at map[int]driver.Instant) {
	t.Helper()
	if q.Len() != len(at) || len(q.All()) != len(at) {
		t.Errorf("%d entries, and %d of them, want %d", q.Len(), len(q.All()), len(at))
	}
	for i := range entries {
		want, queued := at[i]
		if entries[i].Queued() != queued || queued && entries[i].At() != want {
			t.Errorf("entry %d: queued %v at %v, want %v at %v", i, entries[i].Queued(), entries[i].At(), queued, want)
		}
	}
	first := q.First()
	switch {
	case (first == nil) != (len(at) == 0):
		t.Errorf("the first of %d is %v", len(at), first)
	case first != nil:
		for _, instant := range at {
			if instant < first.At() {
				t.Errorf("the first is due at %v, another at %v", first.At(), instant)
			}
		}
	}
}

// drain takes out the first again and again.
func drain(t *testing.T, q *due.Queue[int], at map[int]driver.Instant) {
	t.Helper()
	var want, got []driver.Instant
	for _, instant := range at {
		want = append(want, instant)
	}
	slices.Sort(want)
	for e := q.First(); e != nil; e = q.First() {
		got = append(got, e.At())
		q.Drop(e)
	}
	if !slices.Equal(got, want) {
		t.Errorf("drained %v, want %v", got, want)
	}
}

// TestDropTwice: an entry that is not queued may be dropped, and keeps its
// instant.
func TestDropTwice(t *testing.T) {
	var q due.Queue[string]
	var e due.Entry[string]
	q.Drop(&e)
	q.Set(&e, 7)
	q.Drop(&e)
	q.Drop(&e)
	if q.Len() != 0 || e.Queued() || e.At() != 7 || q.First() != nil {
		t.Errorf("%d entries, queued %v at %v", q.Len(), e.Queued(), e.At())
	}
}

// TestShrinks: what ten thousand entries needed is given back when they are
// gone, in any order, and those that stay are still in order (P9).
func TestShrinks(t *testing.T) {
	const many, few = 10_000, 20
	var q due.Queue[int]
	entries := make([]due.Entry[int], many)
	random := rand.New(rand.NewPCG(1, 0))
	order := random.Perm(many)
	for _, i := range order {
		q.Set(&entries[i], driver.Instant(i))
	}
	if first := q.First(); first != &entries[0] {
		t.Fatalf("the first is due at %v", first.At())
	}
	at := map[int]driver.Instant{}
	for n, i := range random.Perm(many) {
		if n < many-few {
			q.Drop(&entries[i])
		} else {
			at[i] = driver.Instant(i)
		}
	}
	if c := cap(q.All()); c > 8*few {
		t.Errorf("room for %d is kept for %d", c, few)
	}
	compare(t, &q, entries, at)
	drain(t, &q, at)
}
