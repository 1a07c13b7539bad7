package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
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
		w.release(lease)
	})
}

// TestFailingRenewals: a renewal that fails brings doubt, and further attempts. One that succeeds ends the doubt.
// Without one the lease is lost exactly at its trust deadline (P2): TTL 30 s less the margin of a fiftieth.
func TestFailingRenewals(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		inWorld(t, func(w *world) {
			told, start := map[string][]time.Duration{}, time.Now()
			note := func(what string) func(holdfast.Event) {
				return func(e holdfast.Event) {
					told[what] = append(told[what], time.Since(start))
					if what != "recovered" && !errors.Is(e.Err, errStore) {
						t.Errorf("%s because of %v", what, e.Err)
					}
				}
			}
			c, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
				InDoubt: note("in doubt"), Recovered: note("recovered"), Lost: note("lost"),
			}})
			lease := w.acquire(c.Mutex("x", nil))
			f.set(func() { f.renew = failRenewals })
			want := "map[in doubt:[10s] lost:[29.4s]]"
			if recovers {
				want = "map[in doubt:[10s] recovered:[20s]]"
				time.Sleep(20*time.Second - time.Nanosecond)
				f.set(func() { f.renew = nil })
				time.Sleep(time.Hour)
			} else {
				<-lease.Done()
			}
			err := lease.Err()
			if le := (*holdfast.LostError)(nil); errors.As(err, &le) == recovers || !recovers && (!errors.Is(err, errStore) || le.Name != "x") {
				t.Errorf("Err is %v; a *LostError with the store's error is right without a recovery: %t", err, recovers)
			}
			if got := lease.Release(); got != err {
				t.Errorf("Release returned %v, and Err %v", got, err)
			}
			synctest.Wait()
			if at := told["recovered"]; len(at) == 1 && at[0] > 20*time.Second && at[0] < 23*time.Second {
				at[0] = 20 * time.Second // at the next attempt
			}
			if got := fmt.Sprint(told); got != want {
				t.Errorf("told %v, want %v", got, want)
			}
			if f.renewals.Load() < 6 {
				t.Errorf("only %d attempts before the lease was given up", f.renewals.Load())
			}
		})
	}
}

// TestHangingRenewalIsTriedAgain: a renewal that hangs does not prevent the next attempts.
func TestHangingRenewalIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() {
			f.renew = func(ctx context.Context, g []driver.Grant) []driver.Renewal {
				if f.renewals.Load() == 1 {
					<-ctx.Done()
					return []driver.Renewal{{Err: ctx.Err()}}
				}
				return f.Driver.Renew(ctx, g)
			}
		})
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil || f.renewals.Load() < 2 {
			t.Errorf("one renewal hung, and after %d calls the lease is lost: %v", f.renewals.Load(), err)
		}
	})
}

// TestSuspendIsALossAtTheFirstCheck: while the host sleeps, boot time goes on, and monotonic time and every timer
// stand still. Err tells of the loss at once, and Done and contexts with it (P2).
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

// TestSuspendIsNoticedByTheNextRenewal: without a call of Err, Done closes with the next thing that runs.
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
		for _, fault := range []renews{failRenewals, func(context.Context, []driver.Grant) []driver.Renewal { return nil }} {
			f.set(func() { f.renew = fault })
			if err := lease.Renew(w.ctx); err == nil || errors.Is(err, holdfast.ErrLost) || lease.Err() != nil {
				t.Errorf("a failed renewal returned %v, and the lease is %v", err, lease.Err())
			}
		}
		time.Sleep(10 * time.Second)
		if err := lease.Renew(w.ctx); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("renewing a lost lease returned %v", err)
		}
	})
}

// TestStaleGrantIsRenewedFirst: a grant that was long under way is renewed before the caller gets it. If that fails,
// the caller gets nothing, and the grant goes back with its token and the driver's handle, by which a store finds it (P6).
func TestStaleGrantIsRenewedFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.try = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := f.Driver.Try(ctx, r)
			g.Handle = "lease-17"
			time.Sleep(25 * time.Second)
			return g, err
		}
		lease := w.acquire(c.Mutex("x", nil))
		if left := time.Until(lease.ValidUntil()); left < 29*time.Second || f.renewals.Load() != 1 {
			t.Errorf("the caller got %v of 30 s, after %d renewals", left, f.renewals.Load())
		}
		f.set(func() {
			f.renew = failRenewals
			f.release = func(ctx context.Context, g []driver.Grant) []error {
				if g[0].Handle != "lease-17" || g[0].Token == 0 {
					t.Errorf("Release is given token %d, handle %v", g[0].Token, g[0].Handle)
				}
				return f.Driver.Release(ctx, g)
			}
		})
		if _, err := c.Mutex("y", nil).Acquire(w.ctx); !errors.Is(err, errStore) {
			t.Errorf("Acquire returned %v", err)
		}
		synctest.Wait()
		w.free("y", "P6: after a failed acquire")
	})
}

// TestClaimIsExtendedInTheBackground: a claim is used at once, and trusted no longer than the store keeps it (P1) until
// it is renewed in the background.
func TestClaimIsExtendedInTheBackground(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(nil)
		b, f := w.client(nil)
		first, q := w.acquire(a.Mutex("x", nil)), w.waiters()
		q.join(w.ctx, b.Mutex("x", nil))
		w.release(first)
		lease := <-q.leases
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
		if err := b.Break(w.ctx, "x", lease.Token()+1); !errors.Is(err, holdfast.ErrNotHeld) || lease.Err() != nil {
			t.Errorf("P4: breaking another token returned %v; the lease is %v", err, lease.Err())
		}
		if err := b.Break(w.ctx, "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		if took := w.took(func() { <-lease.Done() }); took != 0 {
			t.Errorf("the holder learned of it after %v", took)
		}
		for _, err := range []error{lease.Err(), lease.Release()} {
			if !errors.Is(err, holdfast.ErrBroken) || !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("the holder is told %v", err)
			}
		}
	})
}

// TestMaxHold: when the maximum hold is over, renewals stop, Expiring is called once, and the lease ends exactly at the
// trust deadline of that moment. The deadlines follow from a TTL of 30 s, renewals every 10 s and the margin of 0.6 s.
func TestMaxHold(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name        string
		options     holdfast.Options
		end         time.Duration
		renewals    int32
		unreachable bool // the store, from just before the end of the maximum on
	}{
		{name: "between renewals", options: holdfast.Options{MaxHold: 65 * s}, end: 89400 * time.Millisecond, renewals: 6},
		{name: "as a renewal is due", options: holdfast.Options{MaxHold: 60 * s}, end: 79400 * time.Millisecond, renewals: 5},
		{name: "less than a renewal's interval", options: holdfast.Options{MaxHold: s}, end: 29400 * time.Millisecond},
		{name: "never renewed", options: holdfast.Options{MaxHold: s, RenewEvery: -1}, end: 29400 * time.Millisecond},
		{name: "in doubt", options: holdfast.Options{MaxHold: 65 * s}, end: 79400 * time.Millisecond, renewals: 7, unreachable: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				start, told := time.Now(), ""
				client, f := w.client(&holdfast.ClientOptions{Events: holdfast.Events{
					Expiring: func(e holdfast.Event) { told += fmt.Sprint(time.Since(start), ": until ", e.Until.Sub(start)) },
					Lost:     func(e holdfast.Event) { told += fmt.Sprint(", lost: ", errors.Is(e.Err, holdfast.ErrMaxHold)) },
				}})
				lease := w.acquire(client.Mutex("x", &c.options))
				if c.unreachable {
					time.Sleep(59 * s)
					f.set(func() { f.renew = failRenewals })
				}
				<-lease.Done()
				if d := time.Since(start); d != c.end || f.renewals.Load() != c.renewals {
					t.Errorf("it ended after %v and %d renewals, want %v and %d", d, f.renewals.Load(), c.end, c.renewals)
				}
				synctest.Wait()
				if want := fmt.Sprintf("%v: until %v, lost: true", c.options.MaxHold, c.end); told != want {
					t.Errorf("told %q, want %q", told, want)
				}
				lost := (*holdfast.LostError)(nil)
				if err := lease.Release(); !errors.As(err, &lost) || lost.Reason != holdfast.ErrMaxHold {
					t.Errorf("P2: Release returned %v", err)
				}
				synctest.Wait()
				w.free("x", "the holder has stopped")
			})
		})
	}
}

// TestMaxHoldLateTimer: the clock decides when the maximum hold is over. A host that was suspended meanwhile does not
// renew before its timers have fired.
func TestMaxHoldLateTimer(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", &holdfast.Options{MaxHold: 5 * time.Second}))
		w.clock.suspend(9 * time.Second)
		if err := lease.Renew(w.ctx); !errors.Is(err, holdfast.ErrMaxHold) || f.renewals.Load() != 0 {
			t.Errorf("after %d renewals Renew returned %v", f.renewals.Load(), err)
		}
	})
}

// TestShortestRenewal: the shortest RenewEvery and the shortest TTL that are accepted can be kept up.
func TestShortestRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		often := w.acquire(c.Mutex("often", &holdfast.Options{RenewEvery: holdfast.MinRenewEvery}))
		time.Sleep(time.Second)
		if n := f.renewals.Load(); n < 150 || n > 200 {
			t.Errorf("%d renewals in a second, want one each 5 ms", n)
		}
		short := w.acquire(c.Mutex("short", &holdfast.Options{TTL: 2*holdfast.MinRenewEvery + time.Millisecond}))
		time.Sleep(time.Minute)
		if often.Err() != nil || short.Err() != nil {
			t.Error(often.Err(), short.Err())
		}
	})
}

// TestRenewalsApart: a store needs 400 ms for a renewal, and one of its three parts is dead. Leases on the others
// are renewed as if it were not there, and together. A lease that is too short for the store costs no longer one.
func TestRenewalsApart(t *testing.T) {
	const leases, minutes = 300, 3
	inWorld(t, func(w *world) {
		part := func(name string) string { return name[len(name)-1:] }
		f := &faulty{Forward: wrap.Forward{Driver: w.store.Client()}}
		f.shard = func(r driver.Request) string { return part(r.Name) }
		var doubts, calls atomic.Int32
		c := w.clientOf(f, &holdfast.ClientOptions{Events: holdfast.Events{InDoubt: func(e holdfast.Event) {
			if part(e.Name) == "0" || part(e.Name) == "1" {
				doubts.Add(1)
			}
		}}})
		f.renew = func(ctx context.Context, grants []driver.Grant) []driver.Renewal {
			for _, g := range grants {
				if part(g.Name) != part(grants[0].Name) {
					t.Error("a batch has leases of several parts")
				}
			}
			switch part(grants[0].Name) {
			case "2":
				return f.slowRenewals(time.Hour)(ctx, grants)
			case "1":
				calls.Add(1)
			}
			return f.slowRenewals(400*time.Millisecond)(ctx, grants)
		}
		all := make([]*holdfast.Lease, leases)
		for i := range all {
			all[i] = w.acquire(c.Mutex(fmt.Sprint(i, "/", i%3), nil))
		}
		long := w.acquire(c.Mutex("long, beside a short one", nil))
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		losses := 0
		go func() {
			for {
				lease, err := c.Mutex("short one", &holdfast.Options{TTL: time.Second}).Acquire(ctx)
				if err != nil {
					return
				}
				<-lease.Done() // and it is taken again
				losses++
				_ = lease.Release()
			}
		}()
		time.Sleep(minutes * time.Minute)
		for i, lease := range all {
			if dead := i%3 == 2; (lease.Err() != nil) != dead {
				t.Fatalf("lease %d, dead part: %v: %v", i, dead, lease.Err())
			}
		}
		synctest.Wait()
		if err := long.Err(); err != nil || losses < 100 {
			t.Errorf("the lease of 30 s is %v, after %d losses of that of 1 s", err, losses)
		}
		if doubts.Load() > 0 || calls.Load() > minutes*7 {
			t.Errorf("%d doubts about the live parts; %d calls for a hundred leases", doubts.Load(), calls.Load())
		}
		f.set(func() { f.renew = nil })
	})
}
