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
	const window = 2 * time.Second
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	rate := func(patience time.Duration) (holdsPerSecond, requestsPerHold float64) {
		locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		lock := locks.Mutex("impatience", nil)
		ctx, cancel := context.WithTimeout(t.Context(), window)
		defer cancel()
		var holds atomic.Int64
		var all sync.WaitGroup
		before := used(t, server.Addrs())
		for range 200 {
			all.Go(func() {
				for ctx.Err() == nil {
					attempt, stop := context.WithTimeout(ctx, patience)
					lease, err := lock.Acquire(attempt)
					stop()
					switch {
					case err == nil:
						time.Sleep(2 * time.Millisecond) // the work
						holds.Add(1)
						if err := lease.Release(); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		_, calls := used(t, server.Addrs()).since(before)
		return float64(holds.Load()) / window.Seconds(), calls / float64(holds.Load())
	}
	patient, _ := rate(time.Minute)
	impatient, requests := rate(10 * time.Millisecond)
	t.Logf("patient %.0f/s, impatient %.0f/s, with %.1f requests each", patient, impatient, requests)
	// If each withdrew its place and took another, no hold, or one in hundreds of requests.
	if impatient == 0 || requests > 20 {
		t.Errorf("a hold of impatient waiters takes %.1f requests", requests)
	}
}
