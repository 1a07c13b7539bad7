package etcdlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestImpatience: waiters that give up after milliseconds, and inherit the place from one
// another, are granted the name at no less than a quarter of the rate of one that waits for
// as long as it takes.
func TestImpatience(t *testing.T) {
	const window = 2 * time.Second
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	// Two clients hand the name over to each other, so that each hold begins with a place.
	rate := func(patience time.Duration) float64 {
		var holds atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), window)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			c := dial(t, server.Addrs(), nil)
			defer c.Close()
			all.Go(func() {
				for req := request("impatience"); ctx.Err() == nil; {
					attempt, stop := context.WithTimeout(ctx, patience)
					g, err := c.Enqueue(attempt, req)
					if errors.Is(err, driver.ErrHeld) {
						g, err = c.Wait(attempt, req)
					}
					stop()
					switch {
					case err == nil:
						holds.Add(1)
						if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
							t.Error(err)
						}
						req = request("impatience")
					case driver.Gone(err):
						req = request("impatience")
					case !errors.Is(err, driver.ErrHeld) && !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		return float64(holds.Load()) / window.Seconds()
	}
	patient := rate(time.Minute)
	impatient := rate(time.Millisecond / 2)
	t.Logf("patient %.0f/s, impatient %.0f/s", patient, impatient)
	if impatient < patient/4 {
		t.Errorf("impatient waiters get %.0f holds a second, patient ones %.0f", impatient, patient)
	}
}
