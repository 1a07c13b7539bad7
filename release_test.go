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
		"lost by the clock": func(w *world, _ *faulty) { w.clock.suspend(time.Hour) },
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
					if well := name == "it goes well"; (errs[0] == nil) != well {
						t.Errorf("Release returned %v", errs[0])
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

// Suppose a release succeeds and its answer is lost. The second attempt finds nothing, and that is
// no loss.
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

func TestReleaseTellsTheLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		// Err was not called: the store reports the loss.
		lease := w.acquire(c.Mutex("x", nil))
		w.store.Advance(time.Hour)
		if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) ||
			!errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("Release of a hold that the store has ended: %v", err)
		}
		// The clock reports it. What may be left in the store is withdrawn.
		lease = w.acquire(c.Mutex("y", nil))
		w.clock.suspend(29500 * time.Millisecond)
		if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release after the deadline: %v", err)
		}
		synctest.Wait()
		w.free("y", "after the release of a lost lease")
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

// The name of a job that crashes stays closed for the minimum hold, whichever way the job got the
// name: at once, after a wait, or with a place that another caller had waited in, who gave up just
// before the grant.
func TestMinHoldOfACrash(t *testing.T) {
	for _, way := range []string{"at once", "waited", "inherited"} {
		inWorld(t, func(w *world) {
			a, _ := w.client(nil)
			b, f := w.client(nil)
			c, _ := w.client(nil)
			got := make(chan *holdfast.Lease, 1)
			job := b.Mutex("x", &holdfast.Options{MinHold: 2 * time.Minute})
			if way == "at once" {
				got <- w.acquire(job)
			} else {
				first := w.acquire(a.Mutex("x", nil))
				leaving, leave := context.WithCancel(w.ctx)
				if way == "inherited" {
					go job.Acquire(leaving)
					synctest.Wait()
				}
				go func() { got <- w.acquire(job) }()
				synctest.Wait()
				leave()
				synctest.Wait()
				if err := first.Release(); err != nil {
					t.Fatal(err)
				}
			}
			lease := <-got
			// It crashes as soon as it has the lease.
			f.set(func() { f.renew, f.release = failRenewals, failReleases })
			took := w.took(func() { w.acquire(c.Mutex("x", nil)) })
			if took < 119*time.Second || took > 122*time.Second {
				t.Errorf("P5: the name of a job that crashed opened after %v, want 2m (%s)", took, way)
			}
			if lease.Err() == nil {
				t.Error("P1: the vanished holder trusts its lease")
			}
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
		if _, err := c.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the first of two releases freed the name: %v", err)
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

func TestDowngrade(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		d, _ := w.client(nil)
		rw := c.RWMutex("x", nil)
		writer := w.acquire(rw.Write)
		token := writer.Token()
		again, _ := writer.Reenter()
		if err := writer.Downgrade(w.ctx); err == nil {
			t.Error("downgraded under another lease that relies on holding the name alone")
		}
		_ = again.Release()
		if err := writer.Downgrade(w.ctx); err != nil {
			t.Fatal(err)
		}
		if writer.Mode() != holdfast.Shared || writer.Token() < token {
			t.Errorf("P3: %v, token %d after %d", writer.Mode(), writer.Token(), token)
		}
		reader, err := d.RWMutex("x", nil).Read.TryAcquire(w.ctx)
		if err != nil {
			t.Errorf("a reader beside the downgraded writer: %v", err)
		}
		if _, err := d.Mutex("x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P1: a writer beside it: %v", err)
		}
		time.Sleep(time.Hour)
		if writer.Err() != nil || reader.Err() != nil {
			t.Errorf("after an hour: %v, %v", writer.Err(), reader.Err())
		}
		if err := errors.Join(reader.Release(), writer.Release()); err != nil {
			t.Error(err)
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
