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

// slowRenewals is a driver that needs that long for a batch, and obeys the context.
func slowRenewals(latency time.Duration) func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal {
	return func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
		out := make([]driver.Renewal, len(g))
		select {
		case <-time.After(latency):
			return d.Renew(ctx, g)
		case <-ctx.Done():
			for i := range out {
				out[i].Err = ctx.Err()
			}
			return out
		}
	}
}

// oneByOne is a driver that renews one lease after the other, as a database does with shared holds.
func oneByOne(w *world, each time.Duration) func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal {
	return func(ctx context.Context, d driver.Driver, g []driver.Grant) (out []driver.Renewal) {
		sent := w.clock.Now()
		for i := range g {
			r := slowRenewals(each)(ctx, d, g[i:i+1])[0]
			r.Since = sent
			out = append(out, r)
		}
		return out
	}
}

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

// A thousand leases of 30 s are renewed one after the other, in 12 ms each. There is time for all,
// though not every 10 s, and none is ever in doubt.
func TestManyLeasesOneByOne(t *testing.T) {
	inWorld(t, func(w *world) {
		var lost, doubts atomic.Int32
		c, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
			Lost:    func(holdfast.Event) { lost.Add(1) },
			InDoubt: func(holdfast.Event) { doubts.Add(1) },
		}})
		f.set(func() { f.renew = oneByOne(w, 12*time.Millisecond) })
		for i := range 1000 {
			w.acquire(c.RWMutex(fmt.Sprint(i), nil).Read)
		}
		time.Sleep(10 * time.Minute)
		if lost.Load() > 0 || doubts.Load() > 0 {
			t.Errorf("%d of 1000 leases lost, %d in doubt", lost.Load(), doubts.Load())
		}
	})
}

// Ten thousand leases cost a store that renews them together a few calls, even beside a lease that
// is renewed all the time, and after a time in which the store has not answered.
func TestManyLeasesTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		var leases []*holdfast.Lease
		for i := range 10_000 {
			leases = append(leases, w.acquire(c.Mutex(fmt.Sprint(i), nil)))
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		short := w.acquire(c.Mutex("short", &holdfast.Options{TTL: 3 * time.Second}))
		var calls, shorts atomic.Int32
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if g[0].Name == "short" {
					shorts.Add(1)
				} else {
					calls.Add(1)
				}
				return slowRenewals(20*time.Millisecond)(ctx, d, g)
			}
		})
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		if n := calls.Load(); n > minutes*7 || shorts.Load() < minutes*55 {
			t.Errorf("%d calls in %d minutes, and %d of the short one", n, minutes, shorts.Load())
		}
		f.set(func() { f.renew = slowRenewals(time.Minute) })
		time.Sleep(14 * time.Second)
		f.set(func() { f.renew = slowRenewals(20 * time.Millisecond) })
		time.Sleep(time.Minute)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("a lease of 30 s is lost in 14 s without the store: %v", err)
			}
		}
		if short.Err() == nil {
			t.Error("P2: a lease of 3 s outlives 14 s without the store")
		}
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

// Ten thousand leases on three shards, one of which is dead: it takes each request, and answers none. Those on
// the others are renewed as if it were not there, each a third of its TTL after the renewal before.
func TestDeadShardDelaysNoOther(t *testing.T) {
	const (
		leases = 10_000
		ttl    = 30 * time.Second
		late   = ttl/3 + time.Second // the renewals of a third of the TTL are put together to batches
	)
	inWorld(t, func(w *world) {
		shard := func(name string) string { return name[len(name)-1:] }
		var lost, doubts [3]atomic.Int32
		count := func(of *[3]atomic.Int32) func(holdfast.Event) {
			return func(e holdfast.Event) { of[shard(e.Name)[0]-'0'].Add(1) }
		}
		f := &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}
		f.shard = func(r driver.Request) string { return shard(r.Name) }
		c, err := holdfast.New(f, &holdfast.ClientOptions{Clock: w.clock, Events: holdfast.Events{
			Lost: count(&lost), InDoubt: count(&doubts),
		}})
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*holdfast.Lease, leases)
		last := make(map[string]time.Time, leases) // when each owner was renewed
		for i := range all {
			all[i] = w.acquire(c.Mutex(fmt.Sprint(i, "/", i%3), &holdfast.Options{TTL: ttl}))
		}
		start, renewals := time.Now(), 0
		var mu sync.Mutex
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, grants []driver.Grant) []driver.Renewal {
				if shard(grants[0].Name) == "2" {
					<-ctx.Done()
					out := make([]driver.Renewal, len(grants))
					for i := range out {
						out[i].Err = ctx.Err()
					}
					return out
				}
				mu.Lock()
				defer mu.Unlock()
				for _, g := range grants {
					if shard(g.Name) == "2" {
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
					renewals++
				}
				return d.Renew(ctx, grants)
			}
		})
		const minutes = 3
		time.Sleep(minutes * time.Minute)
		mu.Lock()
		if least := leases * 2 / 3 * minutes * 60 / int(late/time.Second); renewals < least {
			t.Errorf("%d renewals, want at least %d", renewals, least)
		}
		mu.Unlock()
		for i, lease := range all {
			if dead := i%3 == 2; (lease.Err() != nil) != dead {
				t.Errorf("lease %d, dead shard: %v: %v", i, dead, lease.Err())
				break
			}
		}
		for i := range lost {
			want := 0
			if i == 2 {
				want = leases / 3
			}
			if got := int(lost[i].Load()); got != want || i != 2 && doubts[i].Load() > 0 {
				t.Errorf("shard %d: %d leases were lost, want %d; %d were in doubt", i, got, want, doubts[i].Load())
			}
		}
		f.set(func() { f.renew = nil })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
