package holdfast_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// knock sends a request with the lease's sequencer to a door that checks it by the client.
func knock(ctx context.Context, c *holdfast.Client, lease *holdfast.Lease) int {
	door := fence.Handler(http.NotFoundHandler(), &fence.HandlerOptions{Check: c.CheckSequencer})
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.Header.Set(fence.Header, lease.Sequencer())
	w := httptest.NewRecorder()
	door.ServeHTTP(w, r)
	return w.Code
}

// A hold was handed over, and the renewal that tells the store does not get through. The store does not know
// the holder yet, and a guard must not say that the lock is lost.
func TestSequencerUnknownToTheStore(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() { f.renew = slowRenewals(time.Hour) })
		q, first := w.contend(c, 2, nil)
		w.release(first)
		lease := q.next("it was handed over")
		other, _ := w.client(nil)
		for _, patience := range []time.Duration{15 * time.Millisecond, time.Minute} {
			ctx, cancel := context.WithTimeout(w.ctx, patience)
			err := other.CheckSequencer(ctx, lease.Sequencer())
			cancel()
			if errors.Is(err, holdfast.ErrNotHeld) || !errors.Is(err, holdfast.ErrUncertain) ||
				lease.Err() != nil {
				t.Errorf("P3: the live holder's sequencer, asked about for %v: %v", patience, err)
			}
			ctx, cancel = context.WithTimeout(w.ctx, patience)
			if code := knock(ctx, other, lease); code != http.StatusServiceUnavailable {
				t.Errorf("the door answers %d after %v", code, patience)
			}
			cancel()
		}
		f.set(func() { f.renew = nil })
		if err := lease.Renew(w.ctx); err != nil {
			t.Fatal(err)
		}
		if code := knock(w.ctx, other, lease); code != http.StatusNotFound {
			t.Errorf("once the store knows the holder, the door answers %d", code)
		}
		w.release(lease)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
	})
}

// A downgrade has not reached the store. The lease counts as shared already, and is still current.
func TestSequencerWhileDowngrading(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.downer()
		f.down = func(context.Context, driver.Downgrader, driver.Grant) (driver.Grant, error) {
			return driver.Grant{}, driver.Uncertain(errStore)
		}
		lease := w.acquire(c.RWMutex("x", nil).Write)
		before := lease.Sequencer()
		if err := lease.Downgrade(w.ctx); !errors.Is(err, errStore) {
			t.Fatal(err)
		}
		if err := c.CheckSequencer(w.ctx, lease.Sequencer()); err != nil || lease.Sequencer() == before {
			t.Errorf("the sequencer of a lease that counts as shared: %v", err)
		}
		f.down = func(ctx context.Context, d driver.Downgrader, g driver.Grant) (driver.Grant, error) {
			return d.Downgrade(ctx, g)
		}
		if err := lease.Downgrade(w.ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.CheckSequencer(w.ctx, before); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("the exclusive sequencer of a shared lease: %v", err)
		}
		synctest.Wait()
	})
}
