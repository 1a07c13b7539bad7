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
	ttl    = 3 * time.Second
	late   = 60 * time.Millisecond // how late replies are in the first round
)

// Run checks that a client keeps its leases for two TTLs while many goroutines of the same
// client acquire and release names of their own, and replies are late (P2).
//
// A second client holds leases too and does nothing else. Suppose that it loses one, or that
// one of its renewals takes a quarter of the TTL: then the machine is too busy and the round
// proves nothing. The next round is three times as slow: replies are three times as late and
// the TTL is three times as long, so that requests wait for the same part of the TTL and the
// machine has less to do. The test fails if the last round proves nothing either.
//
// Delay sets how late replies are from now on, and open returns a client.
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
	t.Error("P2: the machine was too busy in each round, so nothing is proved")
}

// round returns the losses of the busy client, and why the machine may have caused them, or "".
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
		doubt = fmt.Sprintf("a client with nothing to do has lost %d leases, and had to wait %v for a renewal",
			len(slow), slowest)
	}
	return lost, doubt
}

// hold acquires the leases of a client.
func hold(t *testing.T, c *holdfast.Client, ttl time.Duration) (held []*holdfast.Lease) {
	t.Helper()
	for i := range leases {
		lease, err := c.Mutex(fmt.Sprintf("held/%p/%d", c, i),
			&holdfast.Options{TTL: ttl}).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	return held
}

// losses returns the errors of the leases that were lost.
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
