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

const (
	leases = 8   // that each client keeps
	busy   = 512 // goroutines of the busy client
	ttl    = 6 * time.Second
	late   = 120 * time.Millisecond // how late replies are
)

// Run checks that a client keeps its leases for two TTLs while many goroutines of the same client acquire and release
// names of their own, and replies are late (P2). A second client holds leases too and does nothing else: if it loses
// one, the machine is too busy to prove anything, and the test fails.
//
// Delay sets how late replies are from now on, and open returns a client.
func Run(t *testing.T, delay func(time.Duration), open func() *holdfast.Client) {
	delay(late)
	working, idle := open(), open()
	defer working.Close()
	defer idle.Close()
	kept, measure := hold(t, working), hold(t, idle)
	stop := work(working)
	time.Sleep(2 * ttl)
	for _, lease := range measure {
		if err := lease.Err(); err != nil {
			t.Errorf("P2: the machine is too busy: a client that does nothing has lost a lease: %v", err)
		}
	}
	for _, lease := range kept {
		if err := lease.Err(); err != nil {
			t.Errorf("P2: a busy client lost a lease on a healthy server: %v", err)
		}
	}
	stop()
}

// hold acquires the leases of a client.
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
