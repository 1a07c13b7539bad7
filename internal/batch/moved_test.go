package batch

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestShardMoves: a thing's shard may change while it waits for the old one.
func TestShardMoves(t *testing.T) {
	shard := map[int]string{1: "a", 2: "a", 3: "b"}
	entries := make([]Entry, 4)
	p := New(Rules[int]{
		Entry:   func(i int) *Entry { return &entries[i] },
		Slack:   func(int) time.Duration { return 0 },
		Left:    func(int, driver.Instant) time.Duration { return time.Hour },
		Longest: time.Second,
	})
	take := func() []Batch[int] {
		due := p.Due(0)
		return p.Send(0, due, func(i int) string { return shard[due[i]] })
	}
	p.Set(1, 0)
	first := take() // a is busy
	p.Set(2, 0)
	take() // 2 waits for it
	shard[2] = "b"
	p.Drop(2)
	p.Set(3, 0)
	if got := take(); len(got) != 1 {
		t.Errorf("shard b has nothing under way, but there are %d batches", len(got))
	}
	p.Done(first[0], 0, Result{Through: 1})
	if n := p.Len(); n != 0 {
		t.Errorf("a dropped entry is back: %d entries", n)
	}
}
