package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// A store that needs 400 ms for a renewal cannot keep a lease of 1 s. It keeps one of 30 s,
// whatever else the client holds.
func TestShortLeaseCostsNoLongOne(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() { f.renew = slowRenewals(400 * time.Millisecond) })
		long := w.acquire(c.Mutex("long", nil))
		ctx, cancel := context.WithCancel(w.ctx)
		var losses atomic.Int32
		go func() {
			for {
				lease, err := c.Mutex("short", &holdfast.Options{TTL: time.Second}).Acquire(ctx)
				if err != nil {
					return
				}
				<-lease.Done() // and it is taken again
				losses.Add(1)
				_ = lease.Release()
			}
		}()
		time.Sleep(10 * time.Minute)
		if err := long.Err(); err != nil || losses.Load() < 500 {
			t.Errorf("the lease of 30 s is %v, after %d losses of that of 1 s", err, losses.Load())
		}
		cancel()
		synctest.Wait()
	})
}

// The shortest RenewEvery and the shortest TTL that are accepted can be kept up.
func TestShortestRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		often := w.acquire(c.Mutex("often", &holdfast.Options{RenewEvery: holdfast.MinRenewEvery}))
		time.Sleep(time.Second)
		if n := f.renewals.Load(); n < 150 || n > 200 {
			t.Errorf("%d renewals in a second, want one each 5 ms", n)
		}
		short := w.acquire(c.Mutex("short", &holdfast.Options{TTL: 2*holdfast.MinRenewEvery + time.Millisecond}))
		time.Sleep(time.Minute)
		if often.Err() != nil || short.Err() != nil {
			t.Error(often.Err(), short.Err())
		}
	})
}

// Leases on three shards, one of which is dead: it takes each request, and answers none. Those on the
// others are renewed as if it were not there, together, each a third of its TTL after the renewal before.
func TestDeadShardDelaysNoOther(t *testing.T) {
	const (
		leases = 3000
		ttl    = 30 * time.Second
		late   = ttl/3 + time.Second
	)
	inWorld(t, func(w *world) {
		shard := func(name string) string { return name[len(name)-1:] }
		f := &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}
		f.shard = func(r driver.Request) string { return shard(r.Name) }
		var doubts atomic.Int32
		c := w.clientOf(f, &holdfast.ClientOptions{Events: holdfast.Events{InDoubt: func(e holdfast.Event) {
			if shard(e.Name) != "2" {
				doubts.Add(1)
			}
		}}})
		all := make([]*holdfast.Lease, leases)
		for i := range all {
			all[i] = w.acquire(c.Mutex(fmt.Sprint(i, "/", i%3), &holdfast.Options{TTL: ttl}))
		}
		var mu sync.Mutex
		start, calls, last := time.Now(), 0, map[string]time.Time{} // when each owner was renewed
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, grants []driver.Grant) []driver.Renewal {
				if shard(grants[0].Name) == "2" {
					return slowRenewals(time.Hour)(ctx, d, grants)
				}
				mu.Lock()
				defer mu.Unlock()
				calls++
				for _, g := range grants {
					if shard(g.Name) != shard(grants[0].Name) {
						t.Error("a batch has leases of several shards")
					}
					before, known := last[g.Owner]
					if !known {
						before = start
					}
					if since := time.Since(before); since > late {
						t.Errorf("P2: %s is renewed %v after the last time", g.Name, since)
					}
					last[g.Owner] = time.Now()
				}
				return d.Renew(ctx, grants)
			}
		})
		const minutes = 3
		time.Sleep(minutes * time.Minute)
		for i, lease := range all {
			if dead := i%3 == 2; (lease.Err() != nil) != dead {
				t.Fatalf("lease %d, dead shard: %v: %v", i, dead, lease.Err())
			}
		}
		if doubts.Load() > 0 || len(last) != leases*2/3 || calls > 2*minutes*7 {
			t.Errorf("%d doubts on the live shards; %d leases were renewed in %d calls", doubts.Load(), len(last), calls)
		}
		f.set(func() { f.renew = nil })
	})
}
