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
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				if g[0].Name == "b" {
					return d.Release(ctx, g)
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

// A driver's panic in one of the releases reaches the caller after all other releases.
func TestMultiReleasePanic(t *testing.T) {
	for _, bad := range []string{"a", "b", "c"} {
		t.Run(bad, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, f := w.client(nil)
				ml, err := holdfast.All(c.Mutex("a", nil), c.Mutex("b", nil),
					c.Mutex("c", nil)).Acquire(w.ctx)
				if err != nil {
					t.Fatal(err)
				}
				f.set(func() {
					f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
						if g[0].Name == bad {
							panic("driver")
						}
						time.Sleep(time.Second)
						return d.Release(ctx, g)
					}
				})
				defer func() {
					if p := recover(); p != "driver" {
						t.Errorf("recovered %v", p)
					}
					for _, name := range []string{"a", "b", "c"} {
						if name != bad {
							w.free(name, "beside a release that panicked")
						}
					}
					f.set(func() { f.release = nil })
				}()
				_ = ml.Release()
			})
		})
	}
}

// A driver's panic in the acquire of one lock leaves none of the others held (P6).
func TestMultiAcquirePanic(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.Name == "c" {
					panic("driver")
				}
				return d.Try(ctx, r)
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

// ReleaseNow of several locks ignores the minimum hold of each; Release does not.
func TestMultiReleaseNow(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		o := &holdfast.Options{MinHold: time.Hour}
		locks := holdfast.All(c.Mutex("a", o), c.Mutex("b", o))
		for _, now := range []bool{true, false} {
			ml, err := locks.Acquire(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			release := ml.Release
			if now {
				release = ml.ReleaseNow
			}
			if err := release(); err != nil {
				t.Error(err)
			}
		}
		if _, err := locks.TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("P5: after Release: %v", err)
		}
	})
}
