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

// crowd is eight clients on one lock: seven whose one goroutine waits as long
// as it takes, and an impatient one whose goroutines each give up after a
// fraction of a round and begin again at once.
type crowd struct {
	hold, patience, runs time.Duration
	impatient            int                         // goroutines of the impatient client
	options              func(int) *holdfast.Options // of each of them
}

const crowdClients = 8

// share returns the impatient client's share of all grants.
func (cr crowd) share(t *testing.T) float64 {
	t.Helper()
	var grants [crowdClients]int
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.ctx, cr.runs)
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range grants {
			c, _ := w.client(nil)
			work := func(lock *holdfast.Lock, patience time.Duration) {
				for ctx.Err() == nil {
					if cr.turn(w, ctx, lock, patience) {
						mu.Lock()
						grants[i]++
						mu.Unlock()
					}
				}
			}
			if i > 0 {
				wg.Go(func() { work(c.Mutex("x", nil), cr.runs) })
				continue
			}
			for n := range cr.impatient {
				wg.Go(func() {
					time.Sleep(time.Duration(n) * cr.patience / time.Duration(cr.impatient)) // not all give up together
					work(c.Mutex("x", cr.options(n)), cr.patience)
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Second) // what was withdrawn is gone by then
		w.free("x", "nobody is left")
	})
	total := 0
	for _, n := range grants {
		total += n
	}
	share := float64(grants[0]) / float64(total)
	t.Logf("grants: %v; the impatient client's share is %.1f%%, and 1/%d is %.1f%%", grants, 100*share, crowdClients, 100.0/crowdClients)
	return share
}

// turn is one attempt: it returns whether it had the lock.
func (cr crowd) turn(w *world, ctx context.Context, lock *holdfast.Lock, patience time.Duration) bool {
	wait, stop := context.WithTimeout(ctx, patience)
	defer stop()
	lease, err := lock.Acquire(wait)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
			time.Sleep(cr.patience) // time must go on
		}
		return false
	}
	time.Sleep(cr.hold)
	if err := lease.Release(); err != nil {
		w.Error(err)
	}
	return true
}

// TestImpatientClient: a client whose goroutines never wait for a whole round
// gets its share all the same, because the place in the store's queue is the
// gate's and passes from one who gives up to the next (P8). Goroutines that
// cannot inherit from one another, for their notes differ, get next to nothing:
// the measure can tell.
func TestImpatientClient(t *testing.T) {
	const fair = 1.0 / crowdClients
	cr := crowd{
		hold: 10 * time.Millisecond, patience: 30 * time.Millisecond, runs: 20 * time.Second, impatient: 4,
		options: func(int) *holdfast.Options { return nil },
	}
	if share := cr.share(t); share < fair/2 || share > fair*3/2 {
		t.Errorf("with places passed on the share is %.3f, want about %.3f", share, fair)
	}
	cr.options = func(n int) *holdfast.Options { return &holdfast.Options{Note: fmt.Sprint("goroutine ", n)} }
	if share := cr.share(t); share > fair/10 {
		t.Errorf("without places passed on the share is %.3f, want next to nothing", share)
	}
}
