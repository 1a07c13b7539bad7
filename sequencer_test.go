package holdfast_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
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

func TestCheckSequencer(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		seq := lease.Sequencer()
		if err := c.CheckSequencer(w.ctx, seq); err != nil {
			t.Error(err)
		}
		if err := c.CheckSequencer(w.ctx, seq+"x"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("of another name, which nobody holds: %v", err)
		}
		_ = lease.Release()
		if err := c.CheckSequencer(w.ctx, seq); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
		w.acquire(c.Mutex("x", nil))
		if err := c.CheckSequencer(w.ctx, seq); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("under the next holder: %v", err)
		}
		if err := c.CheckSequencer(w.ctx, "nonsense"); err == nil || errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("nonsense: %v", err)
		}
	})
}

// slowRenewals is a driver that needs that long for a batch, and obeys the context.
func slowRenewals(latency time.Duration) func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal {
	return func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
		select {
		case <-time.After(latency):
			return d.Renew(ctx, g)
		case <-ctx.Done():
			return slices.Repeat([]driver.Renewal{{Err: ctx.Err()}}, len(g))
		}
	}
}

// TestSequencerUnknownToTheStore: a hold was handed over, and the renewal that tells the store does not get
// through. The store does not know the holder yet, and a guard must not say that the lock is lost.
func TestSequencerUnknownToTheStore(t *testing.T) {
	withBlocks(t, func(w *world) {
		c, f := w.client(nil)
		q, first := w.contend(c, 2, nil)
		if err := first.Renew(w.ctx); err != nil { // else the hold is a claim, and ends within two polls
			t.Fatal(err)
		}
		f.set(func() { f.renew = slowRenewals(time.Hour) })
		w.release(first)
		lease := q.next("it was handed over")
		other, _ := w.client(nil)
		short, cancel := context.WithTimeout(w.ctx, 15*time.Millisecond)
		defer cancel()
		for _, ctx := range []context.Context{short, w.ctx} {
			if err := other.CheckSequencer(ctx, lease.Sequencer()); errors.Is(err, holdfast.ErrNotHeld) ||
				!errors.Is(err, holdfast.ErrUncertain) || lease.Err() != nil {
				t.Errorf("P3: the live holder's sequencer: %v", err)
			}
		}
		if code := knock(short, other, lease); code != http.StatusServiceUnavailable {
			t.Errorf("the door answers %d", code)
		}
		// CheckSequencer asks again until the store knows.
		f.set(func() { f.renew = slowRenewals(100 * time.Millisecond) })
		go lease.Renew(w.ctx)
		if code := knock(w.ctx, other, lease); code != http.StatusNotFound {
			t.Errorf("once the store knows the holder, the door answers %d", code)
		}
		w.release(lease)
		if err := other.CheckSequencer(w.ctx, lease.Sequencer()); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
	})
}
