package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// warmup precedes each window.
const warmup = 300 * time.Millisecond

// endWithin is how long workers have to end after a window. A worker that has not ended by
// then is stuck: it waits for a lock that nobody holds.
const endWithin = 5 * time.Second

// pairs lets each worker acquire and release a name of its own.
func pairs(ctx context.Context, l Locker, workers int, window time.Duration) (result, error) {
	type outcome struct {
		took []time.Duration
		err  error
	}
	var measuring, done atomic.Bool
	var count atomic.Int64
	outcomes := make(chan outcome, workers)
	for i := range workers {
		name := fmt.Sprintf("bench/%d", i)
		o := outcome{took: make([]time.Duration, 0, 1<<17)}
		go func() {
			for !done.Load() && o.err == nil {
				start := time.Now()
				var unlock func() error
				if unlock, o.err = l.Lock(ctx, name); o.err == nil {
					o.err = unlock()
				}
				if o.err == nil && measuring.Load() {
					o.took = append(o.took, time.Since(start))
					count.Add(1)
				}
			}
			outcomes <- o
		}()
	}
	time.Sleep(warmup)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuOfSelf(), time.Now()
	measuring.Store(true)
	time.Sleep(window)
	measuring.Store(false)
	elapsed, spent, n := time.Since(start), cpuOfSelf()-cpu, float64(count.Load())
	runtime.ReadMemStats(&after)
	done.Store(true)
	var all []time.Duration
	stuck := workers
	for late := time.After(endWithin); stuck > 0; stuck-- {
		select {
		case o := <-outcomes:
			if o.err != nil {
				return result{}, o.err
			}
			all = append(all, o.took...)
			continue
		case <-late:
		}
		break
	}
	if n == 0 {
		return result{}, fmt.Errorf("not one pair in %v", window)
	}
	return result{
		PerSecond: n / elapsed.Seconds(), P50: quantile(all, 0.5), P99: quantile(all, 0.99), Stuck: stuck,
		CPU: time.Duration(float64(spent) / n), Allocs: float64(after.Mallocs-before.Mallocs) / n,
	}, nil
}

// quantile returns the q quantile of the samples, and sorts them.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(len(samples)-1, int(q*float64(len(samples))))]
}
