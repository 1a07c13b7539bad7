package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// downer overrides Downgrade.
type downer struct {
	*faulty
	down func(context.Context, driver.Downgrader, driver.Grant) (driver.Grant, error)
}

func (d *downer) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return d.down(ctx, d.faulty.Forward, g)
}

func (w *world) downer() (*holdfast.Client, *downer) {
	f := &downer{faulty: &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}}
	c, err := holdfast.New(f, &holdfast.ClientOptions{Clock: w.clock})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c, f
}

// While the renewal of a long lease hangs, short leases of the same shard are renewed all the same.
func TestHungRenewalOfALongLease(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		hung := 0
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if g[0].Name == "long" && len(g) == 1 && hung == 0 {
					hung++
					hctx, stop := context.WithTimeout(ctx, 25*time.Minute)
					defer stop()
					<-hctx.Done() // one reply is lost
					return failRenewals(ctx, d, g)
				}
				return d.Renew(ctx, g)
			}
		})
		short := w.acquire(c.Mutex("short", nil))
		time.Sleep(2 * time.Second)
		w.acquire(c.Mutex("long", &holdfast.Options{TTL: time.Hour, RenewEvery: 5 * time.Second}))
		for i := 0; i < 3000; i++ {
			time.Sleep(time.Second)
			if err := short.Err(); err != nil {
				t.Fatalf("after %ds: %v", i, err)
			}
		}
	})
}

// P1: the store has downgraded the hold, and the answer is lost. From the sending on no lease
// counts as exclusive.
func TestUncertainDowngrade(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.downer()
		f.down = func(ctx context.Context, d driver.Downgrader, g driver.Grant) (driver.Grant, error) {
			_, _ = d.Downgrade(ctx, g)
			return driver.Grant{}, driver.Uncertain(errStore)
		}
		other, _ := w.client(nil)
		lease := w.acquire(c.RWMutex("x", nil).Write)
		err := lease.Downgrade(w.ctx)
		reader := w.acquire(other.RWMutex("x", nil).Read)
		time.Sleep(15 * time.Second)
		ctx, cancel := lease.WithContext(w.ctx)
		defer cancel()
		re, reErr := c.Mutex("x", &holdfast.Options{Reentrant: true}).Acquire(ctx)
		if lease.Err() == nil && lease.Mode() == holdfast.Exclusive && reader.Err() == nil {
			t.Errorf("downgrade %v; trusted as %v (%s) beside a reader; reentrant mutex: %v %v",
				err, lease.Mode(), lease.Sequencer(), re, reErr)
		}
	})
}

// The handle of an uncertain request goes back to the driver with the withdrawal.
func TestUncertainHandleIsGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		var back []driver.Grant
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				return driver.Grant{Request: r, Handle: "lease-17"}, driver.Uncertain(errStore)
			}
			f.release = func(ctx context.Context, d driver.Driver, g []driver.Grant) []error {
				back = append(back, g...)
				return d.Release(ctx, g)
			}
		})
		_, err := c.Mutex("x", nil).Acquire(w.ctx)
		time.Sleep(time.Second)
		_ = c.Close()
		if len(back) != 1 || back[0].Handle != "lease-17" {
			t.Errorf("%v: %+v", err, back)
		}
	})
}

// P1: a renewal that grants less than before shortens the trust.
func TestShorterRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		n := 0
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if n++; n > 1 {
					return failRenewals(ctx, d, g)
				}
				return []driver.Renewal{{Since: w.clock.Now(), Valid: 5 * time.Second}}
			}
		})
		l := w.acquire(c.Mutex("x", nil))
		time.Sleep(16 * time.Second) // renewed at 10 s, for 5 s
		if l.Err() == nil {
			t.Errorf("trusted after the store's 5 s are over, until %v", time.Until(l.ValidUntil()))
		}
	})
}

// A grant that is not used is released as the driver returned it.
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
		g := <-back
		if g.Handle != "lease-17" || g.Token == 0 {
			t.Errorf("%v: Release is given token %d, handle %v", err, g.Token, g.Handle)
		}
	})
}

// listError is an error that cannot be compared with ==.
type listError []error

func (l listError) Error() string   { return "list" }
func (l listError) Unwrap() []error { return l }

// Errors of drivers need not be comparable.
func TestErrorsThatDoNotCompare(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		other, _ := w.client(nil)
		w.acquire(other.Mutex("x", nil))
		n := 0
		f.set(func() {
			f.enqueue = func(ctx context.Context, d driver.Queuer, r driver.Request) (driver.Grant, error) {
				switch n++; n {
				case 1:
					return d.Enqueue(ctx, r)
				case 2:
					return driver.Grant{}, listError{errStore}
				}
				return driver.Grant{}, listError{driver.ErrMismatch}
			}
		})
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		if _, err := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, driver.ErrMismatch) ||
			!errors.Is(err, errStore) {
			t.Errorf("Acquire returned %v", err)
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
