package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
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

// live returns the bytes of the live heap.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
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
		before := live()
		for _, name := range names {
			if _, err := d.Try(ctx, driver.Request{Name: name, Owner: name, TTL: time.Minute, Note: "x"}); err != nil {
				b.Fatal(err)
			}
		}
		filled := live()
		floor := filled - before
		runtime.KeepAlive(store)
		_ = d.Close()

		c := realClient(b, memlock.NewStore(nil))
		leases := make([]*holdfast.Lease, n)
		before = live()
		for i, name := range names {
			lease, err := c.Mutex(name, nil).Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			leases[i] = lease
		}
		filled = live()
		b.ReportMetric((filled-before-floor)/n, "B/lease")
		runtime.KeepAlive(leases)
	}
}
