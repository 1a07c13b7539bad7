package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// contest is eight clients on one lock. Seven have one goroutine, which waits as long as it takes.
// The eighth is impatient: its goroutines each give up after a fraction of a round and begin again
// at once.
type contest struct {
	hold, patience, runs time.Duration
	impatient            int                         // goroutines of the impatient client
	options              func(int) *holdfast.Options // of each of them
}

const contestClients = 8

// share returns the impatient client's share of all grants.
func (ct contest) share(t *testing.T) float64 {
	t.Helper()
	var grants [contestClients]int
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.ctx, ct.runs)
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range grants {
			c, _ := w.client(nil)
			work := func(lock *holdfast.Lock, patience time.Duration) {
				for ctx.Err() == nil {
					if ct.attempt(w, ctx, lock, patience) {
						mu.Lock()
						grants[i]++
						mu.Unlock()
					}
				}
			}
			if i > 0 {
				wg.Go(func() { work(c.Mutex("x", nil), ct.runs) })
				continue
			}
			for n := range ct.impatient {
				wg.Go(func() {
					time.Sleep(time.Duration(n) * ct.patience / time.Duration(ct.impatient)) // they do not give up together
					work(c.Mutex("x", ct.options(n)), ct.patience)
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Second) // until withdrawals are over
		w.free("x", "nobody is left")
	})
	total := 0
	for _, n := range grants {
		total += n
	}
	share := float64(grants[0]) / float64(total)
	t.Logf("grants: %v; the impatient client's share is %.1f%%, and 1/%d is %.1f%%",
		grants, 100*share, contestClients, 100.0/contestClients)
	return share
}

// attempt makes one attempt, and reports whether it had the lock.
func (ct contest) attempt(w *world, ctx context.Context, lock *holdfast.Lock, patience time.Duration) bool {
	wait, stop := context.WithTimeout(ctx, patience)
	defer stop()
	lease, err := lock.Acquire(wait)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
			time.Sleep(ct.patience) // time must go on
		}
		return false
	}
	time.Sleep(ct.hold)
	if err := lease.Release(); err != nil {
		w.Error(err)
	}
	return true
}

// TestImpatientClient: a client whose goroutines never wait for a whole round gets its share all
// the same, because the place in the store's queue belongs to the gate, and the next goroutine
// inherits it from one that gives up (P8). Goroutines with different notes cannot inherit and get
// next to nothing, so the measure can tell the difference.
func TestImpatientClient(t *testing.T) {
	const fair = 1.0 / contestClients
	ct := contest{
		hold: 10 * time.Millisecond, patience: 30 * time.Millisecond, runs: 20 * time.Second, impatient: 4,
		options: func(int) *holdfast.Options { return nil },
	}
	if share := ct.share(t); share < fair/2 || share > fair*3/2 {
		t.Errorf("with inherited places the share is %.3f, want about %.3f", share, fair)
	}
	ct.options = func(n int) *holdfast.Options { return &holdfast.Options{Note: fmt.Sprint("goroutine ", n)} }
	if share := ct.share(t); share > fair/10 {
		t.Errorf("without inherited places the share is %.3f, want next to nothing", share)
	}
}
