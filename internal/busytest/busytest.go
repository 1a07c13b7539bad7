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

// How many leases are kept, for how long, beside how many goroutines, while replies are
// how late.
const (
	leases = 8
	busy   = 512
	ttl    = 3 * time.Second
	late   = 60 * time.Millisecond
)

// Run keeps leases of a client for two TTLs while many goroutines of the same client take
// and release names of their own, and replies are late (P2). A second client, which does
// nothing else, is the measure: where it loses leases too, or one of its renewals takes a
// quarter of the TTL, the machine is too busy, and the round says nothing. Then another
// is three times as slow, with replies that are later and a TTL that is longer by as much:
// whoever waits for replies waits for the same part of the TTL, and the machine has less
// to do. The test fails if the last round says nothing either. Delay says how late
// replies are from now on, and open returns a client.
func Run(t *testing.T, delay func(time.Duration), open func() *holdfast.Client) {
	for _, slower := range []time.Duration{1, 3, 9} {
		delay(slower * late)
		lost, doubt := round(t, open(), open(), slower*ttl)
		if doubt == "" {
			for _, err := range lost {
				t.Errorf("P2: a busy client lost a lease on a healthy server: %v", err)
			}
			return
		}
		t.Logf("the machine is too busy for a TTL of %v: %s", slower*ttl, doubt)
	}
	t.Error("nothing was found out")
}

// round returns what the busy client has lost, and why that may be the machine's fault.
func round(t *testing.T, working, idle *holdfast.Client, ttl time.Duration) (lost []error, doubt string) {
	kept, measure := hold(t, working, ttl), hold(t, idle, ttl)
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
		doubt = fmt.Sprintf("a client with nothing to do has lost %d leases, and had to wait %v for a renewal", len(slow), slowest)
	}
	return lost, doubt
}

// hold takes the leases.
func hold(t *testing.T, c *holdfast.Client, ttl time.Duration) (held []*holdfast.Lease) {
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
