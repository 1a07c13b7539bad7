package bench

import (
	"context"
	"slices"
	"sync"
	"time"
)

// hot runs the workers of one process. The workers of all processes lock one name, again and
// again; worker i uses client i, or shares one. The process that has started the others moves
// the arena's stage on.
func hot(ctx context.Context, clients []Locker, t task) (result, error) {
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	holds := make([]int64, t.Workers)
	waits := make([][]time.Duration, t.Workers)
	gaps := make([][]time.Duration, t.Workers)
	errs := make([]error, t.Workers)
	a.ready.Add(1)
	for a.stage.Load() == preparing {
		time.Sleep(time.Millisecond)
	}
	var wg sync.WaitGroup
	for i := range t.Workers {
		id := int32(1 + t.Process*t.Workers + i)
		wg.Go(func() {
			for a.stage.Load() != over {
				start := time.Now()
				unlock, err := clients[i%len(clients)].Lock(ctx, "bench/"+t.Workload)
				// A wait that the end of the measurement cuts short counts too: a worker
				// that never gets the lock has waited longest.
				if a.stage.Load() == measured || a.stage.Load() == over {
					waits[i] = append(waits[i], time.Since(start))
				}
				if err != nil {
					if ctx.Err() == nil {
						errs[i] = err
					}
					return
				}
				counts := a.stage.Load() == measured
				gap := a.enter(id, t.Stay)
				if counts {
					holds[i]++
				}
				if counts && gap > 0 {
					gaps[i] = append(gaps[i], gap)
				}
				if err := unlock(); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	for a.stage.Load() != over {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return result{}, err
		}
	}
	all := slices.Concat(waits...)
	return result{P50: quantile(all, 0.5), P99: quantile(all, 0.99), Holds: holds,
		Gaps: slices.Concat(gaps...)}, nil
}

// jain returns Jain's index of fairness: 1 if all have the same share, 1/n if one of n has
// all.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
