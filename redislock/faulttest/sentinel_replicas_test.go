//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// rivals are goroutines, a client each, that take the same few names again and again.
type rivals struct {
	testing.TB
	served []atomic.Int64
	lost   atomic.Int64

	mu     sync.Mutex
	last   map[string]holdfast.Token
	inside map[string]*holdfast.Lease
}

// compete takes and releases a lock until ctx ends. While a holder trusts its lease nobody else may come
// (P1), and each token is higher than those before it (P3).
func (r *rivals) compete(ctx context.Context, c *holdfast.Client, name string, served *atomic.Int64) {
	lock := c.Mutex(name, &holdfast.Options{TTL: 2 * time.Second})
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			time.Sleep(time.Millisecond) // during a fail-over there must be errors
			continue
		}
		r.mu.Lock()
		if other := r.inside[name]; other != nil && other.Err() == nil && lease.Err() == nil {
			r.Errorf("P1: %v and %v trust their leases at the same time", other, lease)
		}
		if lease.Token() <= r.last[name] {
			r.Errorf("P3: token %d of %s comes after %d", lease.Token(), name, r.last[name])
		}
		r.last[name], r.inside[name] = max(r.last[name], lease.Token()), lease
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
		r.mu.Lock()
		if r.inside[name] == lease {
			delete(r.inside, name)
		}
		r.mu.Unlock()
		if err := lease.Release(); errors.Is(err, holdfast.ErrLost) {
			r.lost.Add(1)
		}
		served.Add(1)
	}
}

// allServed returns when each has had its lock twice more (P7): of all from the first, one in so many.
func (r *rivals) allServed(first, each int) {
	r.Helper()
	for i := first; i < len(r.served); i += each {
		before := r.served[i].Load()
		until(r, fmt.Sprintf("P7: rival %d gets its lock", i), func() bool { return r.served[i].Load() >= before+2 })
	}
}

// TestSentinelDemoted: an operator orders a fail-over, while clients with 200 connections hold and wait. By
// order the sentinels promote any replica, and until the other one is told it may acknowledge what the next
// primary does not have. Where both must acknowledge, no lock is lost, held twice, or stuck, and tokens
// grow. Other fail-overs: see TestSentinelCrowd.
func TestSentinelDemoted(t *testing.T) {
	const clients, competing = 50, 20 // with four connections each
	s := testserver.StartSentinels(t, testserver.SentinelOptions{})
	url := sentinelURL(s) + "?hf.replicas=2"
	before := s.Primary()
	before.AwaitReplicas(2)
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	r := &rivals{TB: t, served: make([]atomic.Int64, competing), last: map[string]holdfast.Token{}, inside: map[string]*holdfast.Lease{}}
	kept := make([]*holdfast.Lease, clients)
	for i := range clients {
		c := openURL(t, url)
		kept[i] = acquire(t, c, fmt.Sprint("own/", i), &holdfast.Options{TTL: time.Minute, RenewEvery: 500 * time.Millisecond})
		if i < competing {
			work.Go(func() { r.compete(ctx, c, fmt.Sprint("few/", i%5), &r.served[i]) })
		}
	}
	r.allServed(0, 1)
	s.Failover()
	now := s.AwaitPrimary(before)
	told := time.Now()
	r.allServed(0, 1)
	took := time.Since(told)
	for i, lease := range kept {
		until(t, fmt.Sprintf("lease %d is renewed or lost", i), func() bool {
			return lease.Renew(t.Context()) == nil || lease.Err() != nil
		})
		if err := lease.Err(); err != nil {
			t.Errorf("a hold that both replicas had acknowledged was lost: %v", err)
		}
	}
	next := openURL(t, "redis://"+now.Addr)
	for _, lease := range kept {
		if _, err := next.Mutex(lease.Name(), nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: %v is trusted, and the new primary says %v", lease, err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		if after := acquire(t, next, lease.Name(), nil); after.Token() <= lease.Token() {
			t.Errorf("P3: token %d comes after %d", after.Token(), lease.Token())
		}
	}
	stop()
	work.Wait()
	t.Logf("all were served twice within %v of the sentinels' agreement; of short leases %d were lost", took, r.lost.Load())
}
