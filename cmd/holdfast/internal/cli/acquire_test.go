//go:build unix

package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// bubbleClock is the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

// TestFresh: a hold whose time was over before the command began is no loss: the lock is asked for again.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := bubbleClock{time.Now()}
		c, err := holdfast.New(memlock.NewStore(&memlock.Options{Clock: clock}).Client(), &holdfast.ClientOptions{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := &runner{store: &store{Client: c}, flags: &runFlags{ttl: 30 * time.Second}}
		lock, asked := c.Mutex("x", &holdfast.Options{TTL: r.flags.ttl, RenewEvery: -1}), 0
		got, err := r.fresh(t.Context(), func(ctx context.Context) (*holdfast.Lease, error) {
			lease, err := lock.Acquire(ctx)
			if asked++; asked == 1 {
				time.Sleep(r.flags.ttl)
			}
			return lease, err
		})
		if err != nil || asked != 2 || got.Err() != nil {
			t.Errorf("the lock was asked for %d times: %v, %v", asked, got, err)
		}
	})
}
