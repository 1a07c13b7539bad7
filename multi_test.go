package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

func TestMultiLock(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		all := holdfast.All(a.Mutex("z", nil), a.RWMutex("y", nil).Read, a.Semaphore("x", 2, nil))
		ml, err := all.Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range ml.Leases() {
			names = append(names, l.Name())
		}
		if len(names) != 3 || names[0] != "x" || names[2] != "z" || len(ml.Tokens()) != 3 ||
			ml.Tokens()["z"] != ml.Leases()[2].Token() {
			t.Errorf("taken in the order %v, tokens %v", names, ml.Tokens())
		}
		both := holdfast.All(b.Mutex("a", nil), b.Mutex("z", nil))
		if _, err := both.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryAcquire with one held: %v", err)
		}
		w.free("a", "P6: all or nothing")
		if err := ml.Release(); err != nil || !errors.Is(ml.Err(), holdfast.ErrReleased) {
			t.Errorf("Release: %v, Err: %v", err, ml.Err())
		}
		<-ml.Done()

		// When one lock is lost, all are.
		err = all.Do(w.ctx, func(ctx context.Context, ml *holdfast.MultiLease) error {
			if err := b.Break(w.ctx, "y", ml.Tokens()["y"]); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			<-ml.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrBroken) ||
				!errors.Is(ml.Err(), holdfast.ErrBroken) {
				t.Errorf("cause %v, Err %v", context.Cause(ctx), ml.Err())
			}
			return nil
		})
		if !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("Do returned %v", err)
		}
		for _, name := range []string{"x", "y", "z"} {
			w.free(name, "after Do")
		}
	})
}

func TestMultiLockRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		d, _ := w.client(nil)
		x, y := c.Mutex("x", nil), c.Mutex("y", nil)
		for want, all := range map[string]*holdfast.MultiLock{
			"All needs at least one lock": holdfast.All(),
			"lock 2 of All is nil":        holdfast.All(x, nil),
			`All has "x" of`:              holdfast.All(x, y, c.RWMutex("x", nil).Read),
			"twice":                       holdfast.All(x, d.Mutex("x", nil)),
			"name is empty":               holdfast.All(x, c.Mutex("", nil)),
		} {
			if _, err := all.Acquire(w.ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("P10: the error is %v, want %q", err, want)
			}
		}
		if f.tries.Load() != 0 {
			t.Error("P10: the store was asked")
		}
	})
}

// If the first lock is lost, the wait for the second ends.
func TestMultiLockStopsAtALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		other, _ := w.client(nil)
		w.acquire(other.Mutex("b", nil))
		go func() {
			time.Sleep(time.Second)
			info, _ := other.Inspect(w.ctx, "a")
			_ = other.Break(w.ctx, "a", info.Holders[0].Token)
		}()
		ctx, cancel := context.WithTimeout(w.ctx, time.Hour)
		defer cancel()
		var err error
		d := w.took(func() { _, err = holdfast.All(c.Mutex("a", nil), c.Mutex("b", nil)).Acquire(ctx) })
		if d > 2*time.Second || !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("waited %v, and returned %v", d, err)
		}
	})
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

// Several dead stores delay Release as long as one does, and the release in a live store is not
// delayed. The errors are joined in the order of the releases.
func TestMultiReleaseOverDeadStores(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		ml, err := holdfast.All(c.Mutex("a", nil), c.Mutex("b", nil), c.Mutex("c", nil),
			c.Mutex("d", nil)).Acquire(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.release = func(ctx context.Context, g []driver.Grant) []error {
				if g[0].Name == "b" {
					return f.Driver.Release(ctx, g)
				}
				<-ctx.Done()
				return []error{ctx.Err()}
			}
		})
		go func() {
			time.Sleep(time.Millisecond)
			w.free("b", "the release in a store that lives waits for the dead ones")
		}()
		took := w.took(func() { err = ml.Release() })
		if took != 5*time.Second || !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("after %v: %v", took, err)
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], `"d"`) ||
			!strings.Contains(lines[1], `"c"`) || !strings.Contains(lines[2], `"a"`) {
			t.Errorf("the errors are %q", lines)
		}
		f.set(func() { f.release = nil })
	})
}

// A driver's panic in the acquire of one lock leaves none of the others held (P6).
func TestMultiAcquirePanic(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
				if r.Name == "c" {
					panic("driver")
				}
				return f.Driver.Try(ctx, r)
			}
		})
		func() {
			defer func() {
				if p := recover(); p != "driver" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = holdfast.All(c.Mutex("a", nil), c.Mutex("b", nil), c.Mutex("c", nil)).Acquire(w.ctx)
		}()
		time.Sleep(time.Minute) // a lease that nobody has would be renewed until now
		for _, name := range []string{"a", "b", "c"} {
			w.free(name, "P6: after an acquire that panicked")
		}
	})
}
