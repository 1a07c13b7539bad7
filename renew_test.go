package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreTrustsForLessThanTheTTL: the store lets each renewal count for a quarter of the TTL only. The lease
// is renewed so much more often, and not lost.
func TestStoreTrustsForLessThanTheTTL(t *testing.T) {
	const most = 30 * time.Second
	inWorld(t, func(w *world) {
		c, f := w.client(&holdfast.ClientOptions{TTL: 4 * most})
		f.set(func() {
			f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				g, err := d.Try(ctx, r)
				g.Valid = most
				return g, err
			}
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				renewals := d.Renew(ctx, g)
				for i := range renewals {
					renewals[i].Valid = most
				}
				return renewals
			}
		})
		lease := w.acquire(c.Mutex("x", nil))
		time.Sleep(time.Hour)
		if err := lease.Err(); err != nil {
			t.Fatalf("P2: lost although every renewal went well: %v", err)
		}
		if n := f.renewals.Load(); n < 360-1 || n > 360*8/7 {
			t.Errorf("%d renewals in an hour; one each 8.75 to 10 s is right", n)
		}
		often := w.acquire(c.Mutex("y", &holdfast.Options{RenewEvery: time.Second}))
		before := f.renewals.Load()
		time.Sleep(time.Minute)
		if n := f.renewals.Load() - before; often.Err() != nil || n < 60-1 || n > 2*60 { // the last may be due as this ends
			t.Errorf("%d renewals in a minute, where one is wanted each second: %v", n, often.Err())
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

// A renewal that the store made, but whose answer comes after the deadline, revives no lease (P2).
func TestLateRenewalRevivesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", nil))
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				out := d.Renew(ctx, g)
				time.Sleep(time.Minute) // ignores its context too
				return out
			}
		})
		time.Sleep(29*time.Second + 399*time.Millisecond)
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if lease.Err() == nil {
			t.Fatal("P2: trusted at the deadline")
		}
		time.Sleep(2 * time.Minute)
		if lease.Err() == nil {
			t.Error("P2: a late answer revived the lease")
		}
	})
}

func TestFixedLeaseEndsAtItsTTL(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("x", &holdfast.Options{TTL: 10 * time.Second, RenewEvery: -1}))
		if took := w.took(func() { <-lease.Done() }); took != 9800*time.Millisecond {
			t.Errorf("a lease without renewal ended after %v, want 9.8s", took)
		}
		if f.renewals.Load() != 0 {
			t.Errorf("it was renewed %d times", f.renewals.Load())
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

// A grant that was long under way is renewed before the caller gets it.
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
	})
}

// A grant that can no longer be renewed gives no lease, and nothing is held.
func TestDeadGrantIsNotHandedOut(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			g, err := d.Try(ctx, r)
			time.Sleep(25 * time.Second)
			return g, err
		}
		f.renew = failRenewals
		if _, err := c.Mutex("x", nil).Acquire(w.ctx); !errors.Is(err, errStore) {
			t.Errorf("Acquire returned %v", err)
		}
		synctest.Wait()
		w.free("x", "P6: after a failed acquire")
	})
}

// Renewals that are due together go out together, and a dead shard delays no other.
func TestBatchesAndShards(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		f.shard = func(r driver.Request) string { return strings.Split(r.Name, "/")[0] }
		d, err := holdfast.New(f, &holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		var good, bad []*holdfast.Lease
		for i := range 200 {
			good = append(good, w.acquire(d.Mutex(fmt.Sprintf("good/%d", i), nil)))
			bad = append(bad, w.acquire(d.Mutex(fmt.Sprintf("bad/%d", i), nil)))
			time.Sleep(5 * time.Millisecond)
		}
		var inFlight, calls, most atomic.Int32
		f.set(func() {
			f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				if strings.HasPrefix(g[0].Name, "bad/") {
					if inFlight.Add(1) > 1 {
						t.Error("two renewals under way for one shard")
					}
					defer inFlight.Add(-1)
					time.Sleep(time.Hour) // dead, and ignores its context
				}
				calls.Add(1)
				most.Store(max(most.Load(), int32(len(g))))
				return d.Renew(ctx, g)
			}
		})
		time.Sleep(5 * time.Minute)
		for _, l := range good {
			if l.Err() != nil {
				t.Fatalf("a dead shard cost a lease of another: %v", l.Err())
			}
		}
		for _, l := range bad {
			if l.Err() == nil {
				t.Fatal("P2: a lease that cannot be renewed is trusted after 5 minutes")
			}
		}
		if n := calls.Load(); n > 40 || most.Load() < 150 {
			t.Errorf("200 leases took %d calls in 5 minutes, the largest of %d", n, most.Load())
		}
		f.set(func() { f.renew = nil })
		time.Sleep(time.Hour)
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

// Suppose an operator breaks a hold while its grant is on its way to the client, and the store's news
// of that is faster. Then the caller does not begin its work under the broken hold: without renewals
// it would trust that to the end.
func TestBreakOvertakesTheGrant(t *testing.T) {
	for _, way := range []string{"Try", "Wait", "Renew"} {
		t.Run(way, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, f := w.client(nil)
				other, _ := w.client(nil)
				breaks := 0
				broken := func(g driver.Grant, err error) (driver.Grant, error) {
					if err == nil && breaks == 0 {
						breaks++
						if err := other.Break(w.ctx, "x", g.Token); err != nil {
							t.Error(err)
						}
						synctest.Wait() // the client hears of it
					}
					return g, err
				}
				f.set(func() {
					switch way {
					case "Try":
						f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
							return broken(d.Try(ctx, r))
						}
					case "Wait":
						f.wait = func(ctx context.Context, q driver.Queuer, r driver.Request) (driver.Grant, error) {
							return broken(q.Wait(ctx, r))
						}
					case "Renew": // of a grant that was under way for long
						f.try = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
							g, err := d.Try(ctx, r)
							time.Sleep(25 * time.Second)
							return g, err
						}
						f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
							out := d.Renew(ctx, g)
							_, _ = broken(g[0], out[0].Err)
							return out
						}
					}
				})
				if way == "Wait" {
					first := w.acquire(other.Mutex("x", nil))
					time.AfterFunc(time.Second, func() { _ = first.Release() })
				}
				lease := w.acquire(c.Mutex("x", &holdfast.Options{RenewEvery: -1}))
				info, err := other.Inspect(w.ctx, "x")
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != lease.Token() || breaks != 1 {
					t.Errorf("P2: %v was broken: the store has %+v (%v)", lease, info.Holders, err)
				}
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				w.free("x", "P6: after a break")
			})
		})
	}
}

// slowNews is a driver whose losses come when the test says so.
type slowNews struct {
	*faulty
	news chan driver.Loss
}

func (s slowNews) Losses() <-chan driver.Loss { return s.news }

// Suppose an operator breaks a claim, and the waiter hears neither of the claim nor of the break. Later
// it asks again, under the same owner, and is granted the name. Then the news of the break comes, which
// is about the claim. The lease ends, and its release frees the name, which is not closed to all
// others until the TTL is over.
func TestOldNewsOfABreak(t *testing.T) {
	inWorld(t, func(w *world) {
		other, _ := w.client(nil)
		d := slowNews{&faulty{Forward: wrap.Forward{Driver: w.store.Client()}}, make(chan driver.Loss)}
		c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		broken := ""
		d.wait = func(ctx context.Context, q driver.Queuer, r driver.Request) (driver.Grant, error) {
			g, err := q.Wait(ctx, r)
			if err == nil && broken == "" {
				broken = g.Owner
				if err := other.Break(w.ctx, "x", g.Token); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // the store forgets whose hold was broken
				return driver.Grant{}, holdfast.ErrHeld
			}
			return g, err
		}
		first := w.acquire(other.Mutex("x", nil))
		time.AfterFunc(time.Second, func() { _ = first.Release() })
		lease := w.acquire(c.Mutex("x", nil))
		if lease.Grant().Owner != broken {
			t.Fatalf("the owner is %s, and was %s", lease.Grant().Owner, broken)
		}
		d.news <- driver.Loss{Owners: []string{broken}, Err: holdfast.ErrBroken}
		<-lease.Done()
		if err := lease.Release(); !errors.Is(err, holdfast.ErrBroken) {
			t.Errorf("Release returned %v", err)
		}
		synctest.Wait()
		w.free("x", "P6: after the release")
	})
}
