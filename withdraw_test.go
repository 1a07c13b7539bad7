package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
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
			if !errors.Is(err, errStore) || errors.Is(err, holdfast.ErrUncertain) != (i < most) {
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
		if _, err := c.Mutex("one more", nil).TryAcquire(w.ctx); !errors.Is(err, errStore) ||
			asked.Load() != most {
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

// As many withdrawals at a store that answers refuse no acquire.
func TestManyWithdrawalsRefuseNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		other, _ := w.client(nil)
		const many = 1<<14 + 1000
		ctx, cancel := context.WithCancel(w.ctx)
		for i := range many {
			name := fmt.Sprint(i)
			w.acquire(other.Mutex(name, nil))
			go func() { _, _ = c.Mutex(name, nil).Acquire(ctx) }()
		}
		synctest.Wait()
		f.set(func() {
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				time.Sleep(100 * time.Millisecond)
				return d.Release(ctx, g)
			}
		})
		cancel()
		time.Sleep(50 * time.Millisecond)
		if _, err := c.Mutex("free", nil).Acquire(w.ctx); err != nil {
			t.Errorf("beside %d withdrawals: %v", many, err)
		}
	})
}

// If a driver panics in Release, the caller sees the panic, and others see an uncertain release.
func TestPanicInRelease(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again: ", again), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var log strings.Builder
				c, f := w.client(&holdfast.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
				f.set(func() {
					f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
						if f.releases.Load() == 1 || again {
							time.Sleep(time.Millisecond) // another waits for the outcome
							panic("driver")
						}
						return d.Release(ctx, g)
					}
				})
				lease := w.acquire(c.Mutex("x", nil))
				second := make(chan error, 1)
				func() {
					defer func() {
						if p := recover(); p != "driver" {
							t.Errorf("the caller sees the panic %v", p)
						}
					}()
					go func() {
						time.Sleep(time.Microsecond)
						second <- lease.Release()
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
				synctest.Wait()
				if logged := strings.Contains(log.String(), "panicked"); logged != again {
					t.Errorf("the log says %q", log.String())
				}
				if took := w.took(func() { _ = c.Close() }); took > 0 {
					t.Errorf("Close waits %v for an operation that is over", took)
				}
			})
		})
	}
}
