// Package busytest checks that a busy client keeps its leases, for the tests of drivers.
package busytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// How many leases are kept, for how long, beside how many goroutines.
const (
	leases = 8
	busy   = 512
	ttl    = 3 * time.Second
)

// rounds is how often Run tries to find out on a machine that is too slow.
const rounds = 3

// Run keeps leases of a client for two TTLs while many goroutines take and release names
// of their own with it (P2). A second client, which does nothing else, is the measure:
// where the machine is so busy that it loses leases too, or that one of its renewals
// takes a quarter of the TTL, the round says nothing and is repeated, and in the end
// nothing is said. Open returns a client of a
// store whose replies are as late as the test wants them.
func Run(t *testing.T, open func() *holdfast.Client) {
	for range rounds {
		working, idle := open(), open()
		kept, measure := hold(t, working), hold(t, idle)
		stop := work(working)
		slowest := time.Duration(0)
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
			sent := time.Now()
			measure[0].Renew(t.Context()) // its failure is among the losses
			slowest = max(slowest, time.Since(sent))
			time.Sleep(ttl / 30)
		}
		lost, slow := losses(kept), losses(measure)
		stop()
		working.Close()
		idle.Close()
		if len(slow) > 0 || slowest > ttl/4 {
			t.Logf("the machine is too busy: a client with nothing to do has lost %d leases, and had to wait %v for a renewal", len(slow), slowest)
			continue
		}
		for _, err := range lost {
			t.Errorf("P2: a busy client lost a lease on a healthy server: %v", err)
		}
		return
	}
}

// hold takes the leases.
func hold(t *testing.T, c *holdfast.Client) (held []*holdfast.Lease) {
	t.Helper()
	for i := range leases {
		lease, err := c.Mutex(fmt.Sprintf("held/%p/%d", c, i), &holdfast.Options{TTL: ttl}).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	return held
}

// losses returns the errors of those that were lost.
func losses(held []*holdfast.Lease) (lost []error) {
	for _, lease := range held {
		if err := lease.Err(); err != nil {
			lost = append(lost, err)
		}
	}
	return lost
}

// work keeps the client busy until stop is called.
func work(c *holdfast.Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for i := range busy {
		working.Go(func() {
			for ctx.Err() == nil {
				if lease, err := c.Mutex(fmt.Sprint("busy/", i), nil).Acquire(ctx); err == nil {
					lease.Release()
				}
			}
		})
	}
	return func() { cancel(); working.Wait() }
}
