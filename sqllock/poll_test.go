package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestPollerWakesForWhoAskedAgain: a waiter is polled for in time though the poller chose its pause while
// the waiter asked for its place again, for another that is far behind (P7).
func TestPollerWakesForWhoAskedAgain(t *testing.T) {
	far := &waiter{request: driver.Request{Name: "far", Owner: "far"}}
	far.moved(100)
	first := &waiter{request: driver.Request{Name: "first", Owner: "first"}}
	c := &client{
		statements: &statements{dialect: MySQL}, newcomer: make(chan struct{}, 1), polling: true, // by nobody
		waiters: map[string]*waiter{"far": far, "first": first},
	}
	c.life, c.stop = context.WithCancel(t.Context())
	defer c.stop()
	c.closed = c.life.Done()
	c.startPollingLocked(&far.pollState)
	c.startPollingLocked(&first.pollState)
	c.stopPolling(first) // to ask again
	for len(c.newcomer) > 0 {
		<-c.newcomer
	}
	_, long, _ := c.pollTargets()
	c.startPollingLocked(&first.pollState)
	if _, short, _ := c.pollTargets(); short >= long {
		t.Fatalf("the test is of no use: the pauses are %v and %v", long, short)
	}
	slept := make(chan struct{})
	go func() {
		c.sleep(time.Hour, c.newcomer)
		close(slept)
	}()
	select {
	case <-slept:
	case <-time.After(time.Minute):
		t.Error("P7: the poller does not wake")
	}
}

// TestWatchOfAShortHold: P7: a hold that came and went between two polls is told of. A watcher that an earlier hint
// woke may have seen it held.
func TestWatchOfAShortHold(t *testing.T) {
	w := &watch{hints: make(chan struct{}, 1)}
	w.update(&state{last: 7})
	<-w.hints
	if w.update(&state{last: 7}) {
		t.Error("a hint without a change")
	}
	if !w.update(&state{last: 8}) || len(w.hints) != 1 {
		t.Error("no hint of a hold that came and went")
	}
}
