package holdfast_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// opens returns when the name can be taken again, in virtual time from now.
func (w *world) opens(name string) time.Duration {
	w.Helper()
	c, _ := w.client(nil)
	return w.took(func() { w.release(w.acquire(c.Mutex(name, nil))) })
}

// TestReleaseNow: the minimum hold does not apply to a lease that was never used. The name is free
// at once, even if the lease was lost by the clock meanwhile.
func TestReleaseNow(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		job := c.Mutex("x", &holdfast.Options{MinHold: time.Hour})
		lease := w.acquire(job)
		if err := lease.ReleaseNow(); err != nil {
			t.Error(err)
		}
		w.free("x", "it was released at once")
		if err := lease.Release(); err != nil {
			t.Errorf("a second release: %v", err)
		}

		lease = w.acquire(job)
		w.release(lease)
		if err := lease.ReleaseNow(); err != nil {
			t.Errorf("a second release: %v", err)
		}
		if d := w.opens("x"); d < 59*time.Minute {
			t.Errorf("the name was free %v after a release within its minimum hold", d)
		}

		lease = w.acquire(job)
		w.clock.suspend(29500 * time.Millisecond) // past the trust deadline, not the TTL
		if err := lease.ReleaseNow(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("P2: it returned %v", err)
		}
		if d := w.opens("x"); d > time.Second {
			t.Errorf("the name was closed for %v after it was lost unused", d)
		}
	})
}

// TestReleaseNowOfSharedHold: where leases share a hold, the minimum applies if one of them was
// used, whichever is released last.
func TestReleaseNowOfSharedHold(t *testing.T) {
	release, now := (*holdfast.Lease).Release, (*holdfast.Lease).ReleaseNow
	for _, c := range []struct {
		name        string
		first, last func(*holdfast.Lease) error
		closed      bool
	}{
		{"both used", release, release, true},
		{"the first was used", release, now, true},
		{"the last was used", now, release, true},
		{"none was used", now, now, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, _ := w.client(nil)
				lease := w.acquire(client.Mutex("x", &holdfast.Options{MinHold: time.Hour}))
				again, err := lease.Reenter()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(c.first(lease), c.last(again)); err != nil {
					t.Error(err)
				}
				if d := w.opens("x"); (d > 59*time.Minute) != c.closed {
					t.Errorf("the name was closed for %v", d)
				}
			})
		})
	}
}

// TestAllUndoneHasNoMinHold: an All that fails has begun no work, so it keeps no name closed (P6).
func TestAllUndoneHasNoMinHold(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		other, _ := w.client(nil)
		busy := w.acquire(other.Mutex("b", nil))
		both := holdfast.All(c.Mutex("a", &holdfast.Options{MinHold: time.Hour}), c.Mutex("b", nil))
		if _, err := both.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		w.free("a", "P6: All has failed")
		blocked := holdfast.All(c.Mutex("b", nil), c.Mutex("c", nil))
		if _, err := blocked.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P6: All, whose first lock is held, returned %v", err)
		}
		w.free("c", "P6: All has taken nothing")
		w.release(busy)
		lease, err := both.TryAcquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		if d := w.opens("a"); d < 59*time.Minute {
			t.Errorf("after All has been held, its name was closed for %v", d)
		}
	})
}
