//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestImpatience: goroutines that give up after 10 ms inherit the place from one another. So they
// are granted the name, and cost the store a few requests for each hold.
func TestImpatience(t *testing.T) {
	testserver.TakeTurn(t)
	// With the race detector more callers would keep two processors busy by themselves.
	const callers, wanted, hanging = 64, 100, time.Minute
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	measure := func(patience time.Duration) (took time.Duration, requestsPerHold float64) {
		locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		lock := locks.Mutex("impatience", nil)
		ctx, cancel := context.WithTimeout(t.Context(), hanging)
		defer cancel()
		start := time.Now()
		var holds atomic.Int64
		var all sync.WaitGroup
		before := used(t, server.Addrs())
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					attempt, stop := context.WithTimeout(ctx, patience)
					lease, err := lock.Acquire(attempt)
					stop()
					switch {
					case err == nil:
						time.Sleep(2 * time.Millisecond) // the work
						if holds.Add(1) == wanted {
							cancel()
						}
						if err := lease.Release(); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		_, calls := used(t, server.Addrs()).since(before)
		if holds.Load() < wanted {
			t.Fatalf("%d holds within %v by callers who wait for %v", holds.Load(), hanging, patience)
		}
		return time.Since(start), calls / float64(holds.Load())
	}
	patient, _ := measure(hanging)
	impatient, requests := measure(10 * time.Millisecond)
	t.Logf("%d holds: patient %v, impatient %v, with %.1f requests each", wanted, patient, impatient, requests)
	// If each withdrew its place and took another, a hold would take hundreds of requests.
	if requests > 20 {
		t.Errorf("a hold of impatient waiters takes %.1f requests", requests)
	}
}
