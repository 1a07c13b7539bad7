package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// counter asks the server what it has done so far.
type counter func() (commands, scripts int64, err error)

// wait lets many workers wait for one name that is held: what do they cost
// while nothing happens, and how long does it take until each had its turn?
func wait(ctx context.Context, l Locker, workers int, window time.Duration, work counter) (result, error) {
	parked := park(workers)
	unlock, err := l.Lock(ctx, "bench/wait")
	if err != nil {
		return result{}, err
	}
	before := memory()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range workers {
		wg.Go(func() {
			unlock, err := l.Lock(ctx, "bench/wait")
			if err == nil {
				err = unlock()
			}
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	const settle = 2 * time.Second
	time.Sleep(settle)
	each := (memory() - before) / float64(workers)
	commands, scripts, err := rate(work, window)
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	if err := unlock(); err != nil {
		return result{}, err
	}
	wg.Wait()
	drain := time.Since(start)
	if err := failed.Load(); err != nil {
		return result{}, fmt.Errorf("a waiter: %w", *err)
	}
	return result{Bytes: each - parked, Commands: commands, Scripts: scripts, Drain: drain}, nil
}

// park returns what a goroutine costs that waits for nothing but a channel.
func park(workers int) float64 {
	release := make(chan struct{})
	before := memory()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { <-release })
	}
	time.Sleep(100 * time.Millisecond)
	each := (memory() - before) / float64(workers)
	close(release)
	wg.Wait()
	return each
}

// memory is what heap and stacks use, after a collection.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// rate returns what the server does per second, without what asking it costs.
func rate(work counter, window time.Duration) (commands, scripts float64, err error) {
	c0, _, err := work()
	if err != nil {
		return 0, 0, err
	}
	c1, s1, err := work()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	time.Sleep(window)
	c2, s2, err := work()
	seconds := time.Since(start).Seconds()
	asking := c1 - c0
	return float64(c2-c1-asking) / seconds, float64(s2-s1) / seconds, err
}
