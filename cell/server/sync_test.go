//go:build soak

package server

import (
	"context"
	"testing"
)

// counted is a store that counts how often it is asked how far the cell is. The first time it answers only when it may.
type counted struct {
	store
	asked chan struct{} // one for each question
	may   chan struct{}
}

// Reached implements store.
func (c *counted) Reached(ctx context.Context) (int64, error) {
	rev, err := c.store.Reached(ctx)
	c.asked <- struct{}{}
	<-c.may
	return rev, err
}

// TestSyncAsksAnew: whoever comes while a question is under way is not content with its answer, which may be of before
// (P1: an answer that tells of no loss proves that there was none). All that come meanwhile share the next one.
func TestSyncAsksAnew(t *testing.T) {
	const most = 20 // questions
	c := &counted{asked: make(chan struct{}, most), may: make(chan struct{})}
	f := newAsFront(t, start(t), func(s store) store { c.store = s; return c })
	first := make(chan error, 1)
	go func() { first <- f.sync(t.Context()) }()
	<-c.asked
	second, third := f.rounds.join(), f.rounds.join()
	if second != third {
		t.Error("two that come at the same time ask a question each")
	}
	close(c.may)
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-second.over
	if n := 1 + len(c.asked); n != 2 || second.err != nil {
		t.Errorf("%d questions, 2 are right: one for those who came before, one for those who came meanwhile (%v)", n, second.err)
	}
}
