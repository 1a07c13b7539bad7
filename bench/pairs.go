package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// warmup precedes each window.
const warmup = 300 * time.Millisecond

// pairs takes and releases, each worker its own name.
func pairs(ctx context.Context, l Locker, workers int, window time.Duration) (result, error) {
	var measuring, done atomic.Bool
	took := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		name := fmt.Sprintf("bench/%d", i)
		took[i] = make([]time.Duration, 0, 1<<17)
		wg.Go(func() {
			for !done.Load() {
				start := time.Now()
				unlock, err := l.Lock(ctx, name)
				if err == nil {
					err = unlock()
				}
				if err != nil {
					errs[i] = err
					return
				}
				if measuring.Load() {
					took[i] = append(took[i], time.Since(start))
				}
			}
		})
	}
	time.Sleep(warmup)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuOfSelf(), time.Now()
	measuring.Store(true)
	time.Sleep(window)
	measuring.Store(false)
	elapsed, spent := time.Since(start), cpuOfSelf()-cpu
	runtime.ReadMemStats(&after)
	done.Store(true)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return result{}, err
		}
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return result{}, fmt.Errorf("not one pair in %v", window)
	}
	n := float64(len(all))
	return result{
		PerSecond: n / elapsed.Seconds(), P50: quantile(all, 0.5), P99: quantile(all, 0.99),
		CPU: time.Duration(float64(spent) / n), Allocs: float64(after.Mallocs-before.Mallocs) / n,
	}, nil
}

// quantile sorts the samples.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(len(samples)-1, int(q*float64(len(samples))))]
}
