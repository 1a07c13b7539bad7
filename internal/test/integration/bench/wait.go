package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// counter returns what the server has done so far.
type counter func() (served, error)

// wait lets many workers wait for one name that is held. It measures what they cost while
// nothing happens, and then how long it takes until each has had the lock.
func wait(ctx context.Context, l Locker, workers int, window time.Duration, work counter) (result, error) {
	parked := park(workers)
	unlock, err := l.Lock(ctx, "bench/wait")
	if err != nil {
		return result{}, err
	}
	before := memory()
	server, err := work()
	if err != nil {
		return result{}, err
	}
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
	now, err := work()
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
	return result{
		Bytes: each - parked, ServerBytes: float64(now.memory-server.memory) / float64(workers),
		Commands: commands, Scripts: scripts, Connections: int(now.connections), Drain: drain,
	}, nil
}

// park returns the memory of a goroutine that only waits on a channel.
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

// memory returns how much heap and stacks use after a collection.
func memory() float64 {
	heap, stacks := memories()
	return heap + stacks
}

func memories() (heap, stacks float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// rate returns what the server does per second, without the commands of the questions.
func rate(work counter, window time.Duration) (commands, scripts float64, err error) {
	first, err := work()
	if err != nil {
		return 0, 0, err
	}
	before, err := work()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	time.Sleep(window)
	after, err := work()
	seconds := time.Since(start).Seconds()
	asking := before.commands - first.commands
	return float64(after.commands-before.commands-asking) / seconds, float64(after.scripts-before.scripts) / seconds, err
}
