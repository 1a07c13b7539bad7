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
		newcomer: make(chan struct{}, 1), polling: true, // by nobody
		waiters: map[string]*waiter{"far": far, "first": first},
	}
	c.life, c.stop = context.WithCancel(t.Context())
	defer c.stop()
	c.closed = c.life.Done()
	c.startPollingLocked(far)
	c.startPollingLocked(first)
	c.stopPolling(first) // to ask again
	for len(c.newcomer) > 0 {
		<-c.newcomer
	}
	_, long := c.pollTargets()
	c.startPollingLocked(first)
	if _, short := c.pollTargets(); short >= long {
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
