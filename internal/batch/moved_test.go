package batch

import (
	"testing"
	"time"
)

// A thing's shard may change while it waits for the old one.
func TestShardMoves(t *testing.T) {
	shard := map[int]string{1: "a", 2: "a", 3: "b"}
	entries := make([]Entry, 4)
	p := New(
		func(i int) *Entry { return &entries[i] },
		func(i int) string { return shard[i] },
		func(int) time.Duration { return 0 })
	p.Set(1, 0)
	p.Take(0) // a is busy
	p.Set(2, 0)
	p.Take(0) // 2 waits for it
	shard[2] = "b"
	p.Drop(2)
	p.Set(3, 0)
	if got := p.Take(0); len(got) != 1 {
		t.Errorf("shard b has nothing under way, but Take returned %v", got)
	}
	p.Done("a")
	if n := p.Len(); n != 0 {
		t.Errorf("what was dropped is back: %d entries", n)
	}
}
