package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// A store that does not answer leaves a bounded number of uncertain acquires behind. Later acquires
// fail without asking the store, so they certainly hold nothing. Once the store answers, all are
// withdrawn (P6), and acquires succeed.
func TestUncertainAcquiresAreBounded(t *testing.T) {
	const most = 1 << 14 // as the documentation of Acquire says
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		var asked atomic.Int32
		f.set(func() {
			f.release = failReleases
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				asked.Add(1)
				g, _ := d.Try(ctx, r)
				return driver.Grant{Request: g.Request}, driver.Uncertain(errStore)
			}
		})
		for i := range most + 100 {
			_, err := c.Mutex(fmt.Sprint(i), &holdfast.Options{TTL: time.Hour}).Acquire(w.ctx)
			if err == nil || !strings.Contains(err.Error(), errStore.Error()) || errors.Is(err, holdfast.ErrUncertain) != (i < most) {
				t.Fatalf("acquire %d: %v", i, err)
			}
		}
		if n := asked.Load(); n != most {
			t.Errorf("the store was asked %d times, want %d", n, most)
		}
		time.Sleep(time.Second)
		calls := f.releases.Load()
		time.Sleep(10 * time.Second)
		if n := f.releases.Load() - calls; n < 10 || n > 100 {
			t.Errorf("%d calls in 10 s to withdraw them all; they are repeated each second at the least, and together", n)
		}
		if _, err := c.Mutex("one more", nil).TryAcquire(w.ctx); err == nil || asked.Load() != most {
			t.Errorf("after ten seconds: %v", err)
		}
		f.set(func() { f.release, f.try = nil, nil })
		time.Sleep(2 * time.Second)
		for i := range most {
			if i%100 == 0 {
				w.free(fmt.Sprint(i), "P6: an uncertain acquire, after the store has answered")
			}
		}
		w.acquire(c.Mutex("one more", nil))
	})
}

// P6: a grant that came too late goes back with its token and the driver's handle, by which a store finds it.
func TestUndoneGrantIsReleasedAsItWas(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		back := make(chan driver.Grant, 9)
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				g, err := d.Try(ctx, r)
				g.Handle = "lease-17"
				time.Sleep(25 * time.Second)
				return g, err
			}
			f.renew = failRenewals
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				for _, x := range g {
					back <- x
				}
				return d.Release(ctx, g)
			}
		})
		_, err := c.Mutex("x", nil).TryAcquire(w.ctx)
		if g := <-back; g.Handle != "lease-17" || g.Token == 0 {
			t.Errorf("%v: Release is given token %d, handle %v", err, g.Token, g.Handle)
		}
	})
}

// If a driver panics in Release, the caller sees the panic, and others see an uncertain release.
func TestPanicInRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.set(func() {
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				if f.releases.Load() == 1 {
					time.Sleep(time.Millisecond) // another waits for the outcome
					panic("driver")
				}
				return d.Release(ctx, g)
			}
		})
		lease := w.acquire(c.Mutex("x", nil))
		second := make(chan error, 1)
		time.AfterFunc(time.Microsecond, func() { second <- lease.Release() })
		func() {
			defer func() {
				if p := recover(); p != "driver" {
					t.Errorf("the caller sees the panic %v", p)
				}
			}()
			_ = lease.Release()
		}()
		for _, err := range []error{<-second, lease.Release()} {
			if !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("another Release returns %v", err)
			}
		}
		time.Sleep(time.Minute)
		w.free("x", "P6: after a release that panicked")
		if took := w.took(func() { _ = c.Close() }); took > 0 {
			t.Errorf("Close waits %v for an operation that is over", took)
		}
	})
}

// refusing is a store that is queued in at once, and refuses requests without a look at the store.
type refusing struct {
	wrap.Forward
	err       error
	withdrawn atomic.Int32
}

func (r *refusing) Contended(string) bool { return true }

func (r *refusing) Enqueue(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.err
}

func (r *refusing) Release(ctx context.Context, g []driver.Grant) []error {
	r.withdrawn.Add(int32(len(g)))
	return r.Forward.Release(ctx, g)
}

// TestRefusedIsNotWithdrawn: P10: what the store has certainly not done is not withdrawn, also if the first request
// asks for a place in the queue. An uncertain outcome is.
func TestRefusedIsNotWithdrawn(t *testing.T) {
	for err, want := range map[error]int32{
		driver.ErrUnsupported:      0,
		errors.New("a bad name"):   0,
		driver.Uncertain(errStore): 1,
	} {
		r := &refusing{Forward: wrap.Forward{Driver: memlock.NewStore(nil).Client()}, err: err}
		c, e := holdfast.New(r, nil)
		if e != nil {
			t.Fatal(e)
		}
		if _, e := c.Mutex("x", nil).Acquire(t.Context()); !errors.Is(e, err) {
			t.Errorf("Acquire: %v, want %v", e, err)
		}
		if e := c.Close(); e != nil { // it waits for withdrawals
			t.Error(e)
		}
		if n := r.withdrawn.Load(); n != want {
			t.Errorf("after %q there were %d withdrawals, want %d", err, n, want)
		}
	}
}
