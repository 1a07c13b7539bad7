package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// BenchmarkUncontended measures an uncontended acquire and release, beside the same two calls of
// the driver.
func BenchmarkUncontended(b *testing.B) {
	store := memlock.NewStore(nil)
	ctx := context.Background()
	b.Run("floor", func(b *testing.B) {
		d := store.Client()
		defer d.Close()
		b.ReportAllocs()
		for b.Loop() {
			g, err := d.Try(ctx, driver.Request{Name: "x", Owner: "me", TTL: time.Second})
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lease", func(b *testing.B) {
		l := realClient(b, store).Mutex("x", nil)
		b.ReportAllocs()
		for b.Loop() {
			lease, err := l.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkContended measures 64 goroutines on one name, in one client and in four: how often the
// lock changes hands, and how evenly (Jain's index, 1 is even).
func BenchmarkContended(b *testing.B) {
	for _, clients := range []int{1, 4} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			store := memlock.NewStore(nil)
			var locks []*holdfast.Lock
			for range clients {
				locks = append(locks, realClient(b, store).Mutex("x", nil))
			}
			const goroutines = 64
			var counts [goroutines]float64
			var changes, total, last = 0, 0, -1 // guarded by the lock
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range goroutines {
				wg.Go(func() {
					for over := false; !over; {
						err := locks[i%clients].Do(context.Background(), func(context.Context, *holdfast.Lease) error {
							if over = total >= b.N; over {
								return nil
							}
							total++
							counts[i]++
							if last != i {
								changes++
							}
							last = i
							return nil
						})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			var sum, squares float64
			for _, n := range counts {
				sum += n
				squares += n * n
			}
			b.ReportMetric(float64(changes)/b.Elapsed().Seconds(), "owner-changes/s")
			b.ReportMetric(sum*sum/(goroutines*squares), "jain")
		})
	}
}

// memory returns the live heap and the stacks in use, in bytes.
func memory() (heap, stack float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// BenchmarkWaiters measures what a waiter costs beyond a goroutine that waits for two channels in
// the same place: on the heap, and in its stack, which belongs to the caller and is as deep as that
// of a server's handler.
func BenchmarkWaiters(b *testing.B) {
	const n = 1000
	for b.Loop() {
		never, over := make(chan struct{}), make(chan struct{})
		parked := func() {
			select {
			case <-never:
			case <-over:
			}
		}
		var waiters sync.WaitGroup
		floorHeap, floorStack := park(&waiters, n, parked)
		close(over)
		waiters.Wait()

		c := realClient(b, memlock.NewStore(nil))
		l := c.Mutex("x", nil)
		lease, err := l.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		heap, stack := park(&waiters, n, func() {
			if err := l.Do(context.Background(), func(context.Context, *holdfast.Lease) error { return nil }); err != nil {
				b.Error(err)
			}
		})
		b.ReportMetric(heap-floorHeap, "heap-B/waiter")
		b.ReportMetric(stack-floorStack, "stack-B/waiter")
		start := time.Now()
		_ = lease.Release()
		waiters.Wait()
		b.ReportMetric(float64(time.Since(start).Microseconds())/n, "us/drained-waiter")
	}
}

// park starts n goroutines that wait, and returns the cost of each.
func park(waiters *sync.WaitGroup, n int, wait func()) (heap, stack float64) {
	before, stackBefore := memory()
	for range n {
		waiters.Go(func() { below(wait) })
	}
	time.Sleep(50 * time.Millisecond)
	heap, stack = memory()
	return (heap - before) / float64(n), (stack - stackBefore) / float64(n)
}

// below calls f with a kilobyte of stack in use.
//
//go:noinline
func below(f func()) {
	var frame [1024]byte
	f()
	runtime.KeepAlive(&frame)
}

// BenchmarkLeases measures what a held lease costs the client. The store's part, which memlock has
// in the same heap, is measured apart and subtracted.
func BenchmarkLeases(b *testing.B) {
	const n = 10_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("lease/%d", i)
	}
	ctx := context.Background()
	for b.Loop() {
		store := memlock.NewStore(nil)
		d := store.Client()
		before, _ := memory()
		for _, name := range names {
			if _, err := d.Try(ctx, driver.Request{Name: name, Owner: name, TTL: time.Minute, Note: "x"}); err != nil {
				b.Fatal(err)
			}
		}
		filled, _ := memory()
		floor := filled - before
		runtime.KeepAlive(store)
		_ = d.Close()

		c := realClient(b, memlock.NewStore(nil))
		leases := make([]*holdfast.Lease, n)
		before, _ = memory()
		for i, name := range names {
			lease, err := c.Mutex(name, nil).Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			leases[i] = lease
		}
		filled, _ = memory()
		b.ReportMetric((filled-before-floor)/n, "B/lease")
		runtime.KeepAlive(leases)
	}
}
