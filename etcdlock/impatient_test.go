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

// TestImpatience: goroutines that give up after 10 ms, and inherit the place from one another,
// are granted the name at no less than a quarter of the rate of patient ones, and cost the
// store no more requests for each hold than two takes and releases do.
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
	const rounds = 3 // a busy machine may spoil one
	for round := range rounds {
		patient, _ := rate(time.Minute)
		impatient, requests := rate(10 * time.Millisecond)
		t.Logf("patient %.0f/s, impatient %.0f/s, with %.1f requests each", patient, impatient, requests)
		if requests > 4 {
			t.Errorf("a hold of impatient waiters takes %.1f requests", requests)
		}
		if impatient >= patient/4 {
			return
		}
		if round == rounds-1 {
			t.Errorf("impatient waiters get %.0f holds a second, patient ones %.0f", impatient, patient)
		}
	}
}
