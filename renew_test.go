package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

func TestLeaseIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		token := lease.Token()
		time.Sleep(24 * time.Hour)
		if err := lease.Err(); err != nil {
			t.Fatalf("P2: lost after a day of renewals that all went well: %v", err)
		}
		if lease.Token() != token {
			t.Errorf("P3: renewals changed the token from %d to %d", token, lease.Token())
		}
		if n := f.renewals.Load(); n < 24*60*6-1 || n > 24*60*6*8/7 {
			t.Errorf("%d renewals in a day; one each 8.75 to 10 s is right", n)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestFailingRenewals(t *testing.T) {
	inWorld(t, func(w *world) {
		var doubt, lost []time.Duration
		start := time.Now()
		c, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
			InDoubt: func(e holdfast.Event) {
				if !errors.Is(e.Err, errStore) {
					t.Errorf("in doubt because of %v", e.Err)
				}
				doubt = append(doubt, time.Since(start))
			},
			Lost: func(e holdfast.Event) { lost = append(lost, time.Since(start)) },
		}})
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() { f.renew = failRenewals })
		<-lease.Done()
		// TTL 30 s less the margin of a fiftieth.
		if at := time.Since(start); at != 29400*time.Millisecond {
			t.Errorf("P2: lost after %v, want exactly 29.4s", at)
		}
		err := lease.Err()
		if le := (*holdfast.LostError)(nil); !errors.As(err, &le) ||
			!errors.Is(err, holdfast.ErrLost) || !errors.Is(err, errStore) || le.Name != "x" {
			t.Errorf("Err is %v; a *LostError with the store's error is right", err)
		}
		if err := lease.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release returned %v and hides the loss", err)
		}
		synctest.Wait()
		if len(doubt) != 1 || doubt[0] != 10*time.Second || len(lost) != 1 {
			t.Errorf("in doubt at %v, lost at %v; want once at 10 s and once", doubt, lost)
		}
		if f.renewals.Load() < 6 {
			t.Errorf("only %d attempts before the lease was given up", f.renewals.Load())
		}
	})
}

func TestRecovery(t *testing.T) {
	inWorld(t, func(w *world) {
		var recovered int
		c, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
			Recovered: func(holdfast.Event) { recovered++ },
		}})
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() { f.renew = failRenewals })
		time.Sleep(20 * time.Second)
		f.set(func() { f.renew = nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := lease.Err(); err != nil || recovered != 1 {
			t.Errorf("after a passing fault: %v, recovered %d times", err, recovered)
		}
	})
}

// A renewal that hangs does not prevent the next attempts.
func TestHangingRenewalIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		var hung atomic.Int32
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if hung.Add(1) == 1 {
					<-ctx.Done()
					return []driver.Renewal{{Err: ctx.Err()}}
				}
				return d.Renew(ctx, g)
			}
		})
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil || hung.Load() < 2 {
			t.Errorf("one renewal hung, and after %d calls the lease is lost: %v", hung.Load(), err)
		}
	})
}

// While the host sleeps, boot time goes on, and monotonic time and every timer stand still (P2).
func TestSuspendIsALossAtTheFirstCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		ctx, cancel := lease.WithContext(w.ctx)
		defer cancel()
		if lease.Err() != nil {
			t.Fatal(lease.Err())
		}
		w.clock.suspend(time.Hour)
		if err := lease.Err(); !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("P2: after an hour of suspension Err is %v", err)
		}
		select {
		case <-lease.Done():
		default:
			t.Error("P2: Err has seen the loss, and Done is open")
		}
		if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("P2: the context's cause is %v", cause)
		}
	})
}

// The same without a call of Err: Done closes with the next thing that runs.
func TestSuspendIsNoticedByTheNextRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		w.clock.suspend(time.Hour)
		if took := w.took(func() { <-lease.Done() }); took > 10*time.Second {
			t.Errorf("Done closed %v after the suspension", took)
		}
		if f.renewals.Load() != 0 {
			t.Error("a lease whose time was over was renewed")
		}
	})
}

func TestRenewByHand(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", &holdfast.Options{TTL: 10 * time.Second, RenewEvery: -1}))
		for range 5 {
			time.Sleep(9 * time.Second)
			if err := lease.Renew(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		f.set(func() { f.renew = failRenewals })
		if err := lease.Renew(w.ctx); !errors.Is(err, errStore) || lease.Err() != nil {
			t.Errorf("a failed renewal returned %v, and the lease is %v", err, lease.Err())
		}
		time.Sleep(10 * time.Second)
		if err := lease.Renew(w.ctx); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("renewing a lost lease returned %v", err)
		}
	})
}

// A grant that was long under way is renewed before the caller gets it. If that fails, the caller gets
// nothing, and nothing is held (P6).
func TestStaleGrantIsRenewedFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			g, err := d.Try(ctx, r)
			time.Sleep(25 * time.Second)
			return g, err
		}
		lease := w.acquire(c.Mutex("x", nil))
		if left := time.Until(lease.ValidUntil()); left < 29*time.Second || f.renewals.Load() != 1 {
			t.Errorf("the caller got %v of 30 s, after %d renewals", left, f.renewals.Load())
		}
		f.set(func() { f.renew = failRenewals })
		if _, err := c.Mutex("y", nil).Acquire(w.ctx); !errors.Is(err, errStore) {
			t.Errorf("Acquire returned %v", err)
		}
		synctest.Wait()
		w.free("y", "P6: after a failed acquire")
	})
}

// A claim is used at once, and renewed in the background.
func TestClaimIsExtendedInTheBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		first := w.acquire(a.Mutex("x", nil))
		got := make(chan *holdfast.Lease)
		go func() { got <- w.acquire(b.Mutex("x", nil)) }()
		synctest.Wait()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		lease := <-got
		if f.renewals.Load() != 0 {
			t.Error("the caller waited for a renewal")
		}
		if left := time.Until(lease.ValidUntil()); left > 2*time.Second {
			t.Errorf("P1: a claim is trusted for %v, longer than the store keeps it", left)
		}
		time.Sleep(time.Second)
		if left := time.Until(lease.ValidUntil()); f.renewals.Load() != 1 || left < 20*time.Second {
			t.Errorf("after a second: %d renewals, %v left", f.renewals.Load(), left)
		}
		time.Sleep(time.Hour)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
	})
}

func TestBreakIsToldAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, _ := w.client(nil)
		lease := w.acquire(a.Mutex("x", nil))
		if err := b.Break(w.ctx, "x", lease.Token()+1); !errors.Is(err, holdfast.ErrNotHeld) ||
			lease.Err() != nil {
			t.Errorf("P4: breaking another token returned %v; the lease is %v", err, lease.Err())
		}
		if err := b.Break(w.ctx, "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		if took := w.took(func() { <-lease.Done() }); took != 0 {
			t.Errorf("the holder learned of it after %v", took)
		}
		if err := lease.Err(); !errors.Is(err, holdfast.ErrBroken) || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Err is %v", err)
		}
		if err := lease.Release(); !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("Release returned %v", err)
		}
	})
}
