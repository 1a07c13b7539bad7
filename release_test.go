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

func TestReleaseIsIdempotent(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		for range 3 {
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}
		if n := f.releases.Load(); n != 1 {
			t.Errorf("released %d times", n)
		}
		if err := lease.Err(); !errors.Is(err, holdfast.ErrReleased) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Err is %v", err)
		}
		select {
		case <-lease.Done():
		default:
			t.Error("Done is open after the release")
		}
		// P4: a second Release must not free the next holder.
		next := w.acquire(c.Mutex("x", nil))
		_ = lease.Release()
		if _, err := c.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) ||
			next.Err() != nil {
			t.Errorf("P4: a repeated release freed a later holder: %v, %v", err, next.Err())
		}
	})
}

// Every Release returns what the first returns, whether it is called meanwhile or later.
func TestEveryReleaseReturnsTheSame(t *testing.T) {
	for name, spoil := range map[string]func(*world, *faulty){
		"it goes well":      func(*world, *faulty) {},
		"the store is mute": func(_ *world, f *faulty) { f.set(func() { f.release = failReleases }) },
		"lost in the store": func(w *world, _ *faulty) { w.store.Advance(time.Hour) },
		"lost by the clock": func(w *world, _ *faulty) { w.clock.suspend(29500 * time.Millisecond) }, // not the TTL
	} {
		for _, meanwhile := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, %d meanwhile", name, meanwhile), func(t *testing.T) {
				inWorld(t, func(w *world) {
					c, f := w.client(nil)
					lease := w.acquire(c.Mutex("x", nil))
					spoil(w, f)
					errs := make([]error, meanwhile+2)
					var wg sync.WaitGroup
					for i := range meanwhile + 1 {
						wg.Go(func() { errs[i] = lease.Release() })
					}
					wg.Wait()
					errs[meanwhile+1] = lease.Release()
					for _, err := range errs {
						if err != errs[0] {
							t.Errorf("the releases returned %v", errs)
						}
					}
					want := map[string]error{"the store is mute": holdfast.ErrUncertain, "it goes well": nil}
					if err, ok := want[name]; !ok && !errors.Is(errs[0], holdfast.ErrLost) || ok && !errors.Is(errs[0], err) {
						t.Errorf("Release returned %v", errs[0])
					}
					if synctest.Wait(); name != "the store is mute" {
						w.free("x", "P6: what a lost lease has left is withdrawn")
					}
				})
			})
		}
	}
}

// The store does not answer: Release is bounded, and goes on in the background.
func TestReleaseInTheBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() { f.release = failReleases })
		var err error
		took := w.took(func() { err = lease.Release() })
		if !errors.Is(err, holdfast.ErrUncertain) || !errors.Is(err, errStore) ||
			errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release returned %v", err)
		}
		if took > 5*time.Second || took < 4*time.Second {
			t.Errorf("Release took %v, want about 5s", took)
		}
		f.set(func() { f.release = nil })
		time.Sleep(2 * time.Second)
		w.free("x", "P6: after a release in the background")
	})
}

// A release succeeds and its answer is lost. The second attempt finds nothing, and that is no loss.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() {
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				f.set(func() { f.release = nil })
				_ = d.Release(ctx, g)
				return []error{errStore}
			}
		})
		if err := lease.Release(); err != nil || f.releases.Load() != 2 {
			t.Errorf("P4: after %d attempts: %v", f.releases.Load(), err)
		}
	})
}

// A driver that breaks its contract is an error, not a panic.
func TestDriverReturnsTooLittle(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", &holdfast.Options{TTL: 10 * time.Second}))
		f.set(func() {
			f.renew = func(context.Context, driver.Driver, []driver.Grant) []driver.Renewal { return nil }
			f.release = func(context.Context, driver.Driver, []driver.Grant) []error { return nil }
		})
		if err := lease.Renew(w.ctx); err == nil || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Renew: %v", err)
		}
		if err := lease.Release(); !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("Release: %v", err)
		}
		f.set(func() { f.renew, f.release = nil, nil })
	})
}

func TestReleaseIsBoundedByTheValidity(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", &holdfast.Options{TTL: time.Second}))
		f.set(func() {
			f.release = func(ctx context.Context, _ driver.Driver, g []driver.Grant) []error {
				<-ctx.Done()
				return []error{ctx.Err()}
			}
		})
		if took := w.took(func() { _ = lease.Release() }); took > 980*time.Millisecond {
			t.Errorf("Release took %v, longer than the lease was valid", took)
		}
	})
}

func TestMinHoldAndLockDelay(t *testing.T) {
	inWorld(t, func(w *world) {
		a, f := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", &holdfast.Options{MinHold: time.Minute}))
		_ = lease.Release()
		if took := w.took(func() { lease = w.acquire(b.Mutex("x", nil)) }); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("a minimum hold of 1m was over after %v", took)
		}
		_ = lease.Release()

		lease = w.acquire(a.Mutex("y", &holdfast.Options{LockDelay: time.Minute}))
		_ = lease.Release()
		if took := w.took(func() { lease = w.acquire(b.Mutex("y", nil)) }); took != 0 {
			t.Errorf("P5: a clean release opened the name after %v", took)
		}
		_ = lease.Release()

		lease = w.acquire(a.Mutex("z", &holdfast.Options{LockDelay: time.Minute}))
		f.set(func() { f.renew, f.release = failRenewals, failReleases }) // the holder vanishes
		took := w.took(func() { w.acquire(b.Mutex("z", nil)) })
		if took < 90*time.Second || took > 91*time.Second {
			t.Errorf("P5: a vanished holder's name opened after %v, want TTL + lock-delay = 90s", took)
		}
		if lease.Err() == nil {
			t.Error("P1: the vanished holder trusts its lease")
		}
	})
}

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

func TestReenter(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		again, err := lease.Reenter()
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() != lease.Token() || f.tries.Load() != 1 {
			t.Errorf("tokens %d and %d after %d round trips", lease.Token(), again.Token(), f.tries.Load())
		}
		if err := lease.Release(); err != nil || again.Err() != nil ||
			!errors.Is(lease.Err(), holdfast.ErrReleased) {
			t.Errorf("after the first release: %v, %v, %v", err, again.Err(), lease.Err())
		}
		if _, err := lease.Reenter(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("re-entering a released lease: %v", err)
		}
		_ = lease.Release() // again: it counts for nothing (P4)
		synctest.Wait()
		if _, err := c.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P4: the first of two leases freed the name: %v", err)
		}
		if err := again.Release(); err != nil {
			t.Error(err)
		}
		w.free("x", "after the last release")
	})
}

// A loss ends every lease of the hold. The hold is given back to the store only when all of them
// are released.
func TestLossOfASharedHold(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		one := w.acquire(c.Mutex("x", nil))
		two, _ := one.Reenter()
		f.set(func() { f.renew = failRenewals })
		<-one.Done()
		<-two.Done()
		_ = one.Release()
		synctest.Wait()
		if n := f.releases.Load(); n != 0 {
			t.Error("the hold was given back before one of its leases was released")
		}
		if err := two.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		synctest.Wait()
		if n := f.releases.Load(); n != 1 {
			t.Errorf("given back %d times", n)
		}
	})
}

func TestClose(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		other, _ := w.client(nil)
		blocker := w.acquire(other.Mutex("taken", nil))
		var leases []*holdfast.Lease
		for i := range 100 {
			leases = append(leases, w.acquire(c.Mutex(fmt.Sprint(i), nil)))
		}
		ctx, cancel := leases[0].WithContext(w.ctx)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := c.Mutex("taken", nil).Acquire(w.ctx); !errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("a waiting Acquire returned %v", err)
				}
			})
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
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
		_ = blocker.Release()
		w.free("taken", "P6: waiters of a closed client")

		// Use after Close (P10).
		if _, err := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Acquire: %v", err)
		}
		if _, err := c.Inspect(w.ctx, "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Inspect: %v", err)
		}
		if err := c.Break(w.ctx, "x", 1); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Break: %v", err)
		}
		for _, err := range c.List(w.ctx, "") {
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("List: %v", err)
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// A store that never answers delays Close for at most 5 s.
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
