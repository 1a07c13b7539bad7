package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// TestRelease: every Release returns what the first returns, whether it is called meanwhile or later, and frees no
// later holder (P4). It waits for a store that does not answer for as long as the lease is valid, at most 5 s, and
// goes on in the background (P6).
func TestRelease(t *testing.T) {
	hang := func(ctx context.Context, _ []driver.Grant) []error {
		<-ctx.Done()
		return []error{ctx.Err()}
	}
	for _, c := range []struct {
		name  string
		ttl   time.Duration
		spoil func(*world, *faulty)
		want  error
		calls int32         // of the driver; 0: any number
		took  time.Duration // at most, and a second less at least
	}{
		{name: "it goes well", calls: 1},
		{name: "the answer is lost", calls: 2, spoil: func(_ *world, f *faulty) { // what is not there any more was released
			f.release = func(ctx context.Context, g []driver.Grant) []error {
				f.set(func() { f.release = nil })
				_ = f.Driver.Release(ctx, g)
				return []error{errStore}
			}
		}, took: time.Second},
		{name: "the store is out of order", spoil: func(_ *world, f *faulty) { f.release = failReleases }, want: holdfast.ErrUncertain, took: 5 * time.Second},
		{name: "the store is silent", spoil: func(_ *world, f *faulty) { f.release = hang }, want: holdfast.ErrUncertain, took: 5 * time.Second},
		{name: "a short lease", ttl: time.Second, spoil: func(_ *world, f *faulty) { f.release = hang }, want: holdfast.ErrUncertain, took: 980 * time.Millisecond},
		{name: "the driver returns too little", spoil: func(_ *world, f *faulty) {
			f.release = func(context.Context, []driver.Grant) []error { return nil }
		}, want: holdfast.ErrUncertain, took: 5 * time.Second},
		{name: "lost in the store", calls: 1, spoil: func(w *world, _ *faulty) { w.store.Advance(time.Hour) }, want: holdfast.ErrLost},
		{name: "lost by the clock", spoil: func(w *world, _ *faulty) { w.clock.suspend(29500 * time.Millisecond) }, want: holdfast.ErrLost}, // not the TTL
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, f := w.client(nil)
				lease := w.acquire(client.Mutex("x", &holdfast.Options{TTL: c.ttl}))
				if c.spoil != nil {
					c.spoil(w, f)
				}
				errs := make([]error, 3)
				took := w.took(func() {
					var wg sync.WaitGroup
					for i := range 2 {
						wg.Go(func() { errs[i] = lease.Release() })
					}
					wg.Wait()
				})
				calls := f.releases.Load()
				errs[2] = lease.Release()
				if !errors.Is(errs[0], c.want) || errs[1] != errs[0] || errs[2] != errs[0] {
					t.Errorf("the releases returned %v, want %v", errs, c.want)
				}
				if took > c.took || took < c.took-time.Second {
					t.Errorf("Release took %v, want about %v", took, c.took)
				}
				if c.calls != 0 && calls != c.calls {
					t.Errorf("released %d times", calls)
				}
				select {
				case <-lease.Done():
				default:
					t.Error("Done is open after the release")
				}
				if c.want != holdfast.ErrLost && !errors.Is(lease.Err(), holdfast.ErrReleased) {
					t.Errorf("Err is %v", lease.Err())
				}
				f.set(func() { f.release = nil })
				time.Sleep(2 * time.Second)
				w.free("x", "P6: what is left of it is withdrawn")
				next := w.acquire(client.Mutex("x", nil))
				_ = lease.Release()
				if _, err := client.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) || next.Err() != nil {
					t.Errorf("P4: a repeated release freed a later holder: %v, %v", err, next.Err())
				}
			})
		})
	}
}

// TestMinHoldAndLockDelay: a released name stays closed for the minimum hold, and that of a vanished holder for its TTL
// and lock-delay (P5).
func TestMinHoldAndLockDelay(t *testing.T) {
	for _, c := range []struct {
		name     string
		options  holdfast.Options
		vanishes bool
		opens    time.Duration
	}{
		{name: "a minimum hold", options: holdfast.Options{MinHold: time.Minute}, opens: time.Minute},
		{name: "a clean release", options: holdfast.Options{LockDelay: time.Minute}},
		{name: "it vanishes", options: holdfast.Options{LockDelay: time.Minute}, vanishes: true, opens: 90 * time.Second},
	} {
		inWorld(t, func(w *world) {
			a, f := w.client(nil)
			lease := w.acquire(a.Mutex("x", &c.options))
			if c.vanishes {
				f.set(func() { f.renew, f.release = failRenewals, failReleases })
			} else {
				w.release(lease)
			}
			if took := w.opens("x"); took < c.opens || took > c.opens+time.Second {
				t.Errorf("P5: %s: the name opened after %v, want %v", c.name, took, c.opens)
			}
			if lease.Err() == nil {
				t.Errorf("P1: %s: the lease is still trusted", c.name)
			}
		})
	}
}

// TestReleaseNow: the minimum hold does not apply to a lease that was never used, even if it was lost by the clock
// meanwhile. Where leases share a hold, it applies if one of them was used, whichever is released last.
func TestReleaseNow(t *testing.T) {
	release, now := (*holdfast.Lease).Release, (*holdfast.Lease).ReleaseNow
	for _, c := range []struct {
		name        string
		first, last func(*holdfast.Lease) error
		lost        error
		closed      bool
	}{
		{name: "both used", first: release, last: release, closed: true},
		{name: "the first was used", first: release, last: now, closed: true},
		{name: "the last was used", first: now, last: release, closed: true},
		{name: "none was used", first: now, last: now},
		{name: "none was used, and it is lost", first: now, last: now, lost: holdfast.ErrLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, _ := w.client(nil)
				lease := w.acquire(client.Mutex("x", &holdfast.Options{MinHold: time.Hour}))
				again, err := lease.Reenter()
				if err != nil {
					t.Fatal(err)
				}
				if c.lost != nil {
					w.clock.suspend(29500 * time.Millisecond) // past the trust deadline, not the TTL
				}
				if err := errors.Join(c.first(lease), c.last(again), now(again)); !errors.Is(err, c.lost) {
					t.Errorf("P2: it returned %v", err)
				}
				if d := w.opens("x"); c.closed && d < 59*time.Minute || !c.closed && d > time.Second {
					t.Errorf("the name was closed for %v", d)
				}
			})
		})
	}
}

// TestReenter: a lease that is released twice counts once, also beside another on its hold (P4).
func TestReenter(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		again, err := lease.Reenter()
		if err != nil || f.tries.Load() != 1 {
			t.Fatalf("%v after %d round trips", err, f.tries.Load())
		}
		w.release(lease)
		w.release(lease)
		synctest.Wait()
		if _, err := lease.Reenter(); !errors.Is(err, holdfast.ErrReleased) || again.Err() != nil {
			t.Errorf("re-entering a released lease: %v; the other one: %v", err, again.Err())
		}
		if _, err := c.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P4: the first of two leases freed the name: %v", err)
		}
		w.release(again)
		w.free("x", "after the last release")
	})
}

// TestLossOfASharedHold: a loss ends every lease of the hold. The hold is given back to the store only when all of
// them are released.
func TestLossOfASharedHold(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		one := w.acquire(c.Mutex("x", nil))
		two, _ := one.Reenter()
		f.set(func() { f.renew = failRenewals })
		<-one.Done()
		<-two.Done()
		for i, lease := range []*holdfast.Lease{one, two} {
			if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release: %v", err)
			}
			synctest.Wait()
			if n := f.releases.Load(); n != int32(i) {
				t.Errorf("given back %d times after %d releases", n, i+1)
			}
		}
	})
}

// TestClose: Close ends leases and waits, releases in batches, and refuses what comes later (P10).
func TestClose(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		other, _ := w.client(nil)
		blocker, q := w.acquire(other.Mutex("taken", nil)), w.waiters()
		var leases []*holdfast.Lease
		for i := range 100 {
			leases = append(leases, w.acquire(c.Mutex(fmt.Sprint(i), nil)))
		}
		ctx, cancel := leases[0].WithContext(w.ctx)
		defer cancel()
		for range 5 {
			q.join(w.ctx, c.Mutex("taken", nil))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := <-q.errs; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a waiting Acquire returned %v", err)
			}
		}
		if n := f.releases.Load(); n > 3 {
			t.Errorf("100 leases were released in %d calls", n)
		}
		for i, l := range leases {
			if !errors.Is(l.Err(), holdfast.ErrReleased) || l.Release() != nil {
				t.Fatalf("lease %d after Close: %v", i, l.Err())
			}
			w.free(fmt.Sprint(i), "after Close")
		}
		if !errors.Is(context.Cause(ctx), holdfast.ErrReleased) {
			t.Errorf("the context's cause is %v", context.Cause(ctx))
		}
		w.release(blocker)
		w.free("taken", "P6: waiters of a closed client")

		_, acquire := c.Mutex("x", nil).Acquire(w.ctx)
		_, inspect := c.Inspect(w.ctx, "x")
		errs := map[string]error{"acquire": acquire, "inspect": inspect, "break": c.Break(w.ctx, "x", 1)}
		for _, err := range c.List(w.ctx, "") {
			errs["list"] = err
		}
		for op, err := range errs {
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s: %v", op, err)
			}
		}
		if err := c.Close(); err != nil || len(errs) != 4 {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// TestCloseIsBounded: a store that never answers delays Close for at most 5 s.
func TestCloseIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		w.acquire(c.Mutex("x", nil))
		f.set(func() { f.release = failReleases })
		var err error
		took := w.took(func() { err = c.Close() })
		if !errors.Is(err, holdfast.ErrUncertain) || took > 5*time.Second {
			t.Errorf("Close returned %v after %v", err, took)
		}
	})
}
