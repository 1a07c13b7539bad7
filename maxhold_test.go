package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// expiries collects the events of a client's maximum holds.
type expiries struct {
	start time.Time
	at    []time.Duration // when Expiring was called
	until []time.Duration // its trust deadlines
	doubt int
	lost  []error
}

func (e *expiries) options() *holdfast.ClientOptions {
	e.start = time.Now()
	return &holdfast.ClientOptions{Events: holdfast.Events{
		Expiring: func(ev holdfast.Event) {
			e.at = append(e.at, time.Since(e.start))
			e.until = append(e.until, ev.Until.Sub(e.start))
		},
		InDoubt: func(holdfast.Event) { e.doubt++ },
		Lost:    func(ev holdfast.Event) { e.lost = append(e.lost, ev.Err) },
	}}
}

// TestMaxHold: when the maximum hold is over, renewals stop, Expiring is called once, and the lease
// ends exactly at the trust deadline of that moment. The deadlines follow from a TTL of 30 s,
// renewals every 10 s and the margin of 0.6 s.
func TestMaxHold(t *testing.T) {
	for _, c := range []struct {
		name        string
		options     holdfast.Options
		end         time.Duration
		renewals    int32
		unreachable bool // the store, from just before the end of the maximum on
	}{
		{name: "between renewals", options: holdfast.Options{MaxHold: 65 * time.Second},
			end: 89400 * time.Millisecond, renewals: 6},
		{name: "as a renewal is due", options: holdfast.Options{MaxHold: 60 * time.Second},
			end: 79400 * time.Millisecond, renewals: 5},
		{name: "less than the TTL", options: holdfast.Options{MaxHold: 15 * time.Second},
			end: 39400 * time.Millisecond, renewals: 1},
		{name: "less than a renewal's interval", options: holdfast.Options{MaxHold: time.Second},
			end: 29400 * time.Millisecond},
		{name: "never renewed", options: holdfast.Options{MaxHold: time.Second, RenewEvery: -1},
			end: 29400 * time.Millisecond},
		{name: "in doubt", options: holdfast.Options{MaxHold: 65 * time.Second},
			end: 79400 * time.Millisecond, renewals: 7, unreachable: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var told expiries
				client, f := w.client(told.options())
				lease := w.acquire(client.Mutex("x", &c.options))
				if c.unreachable {
					time.Sleep(59 * time.Second)
					f.set(func() { f.renew = failRenewals })
				}
				<-lease.Done()
				if d := time.Since(told.start); d != c.end {
					t.Errorf("it ended after %v, want %v", d, c.end)
				}
				lost := (*holdfast.LostError)(nil)
				if err := lease.Err(); !errors.As(err, &lost) || lost.Reason != holdfast.ErrMaxHold {
					t.Errorf("P2: Err is %v", err)
				}
				synctest.Wait()
				if len(told.at) != 1 || told.at[0] != c.options.MaxHold || told.until[0] != c.end {
					t.Errorf("told at %v that it ends at %v, want once at %v",
						told.at, told.until, c.options.MaxHold)
				}
				if len(told.lost) != 1 || !errors.Is(told.lost[0], holdfast.ErrMaxHold) {
					t.Errorf("the losses are %v", told.lost)
				}
				if n := f.renewals.Load(); n != c.renewals {
					t.Errorf("%d renewals, want %d", n, c.renewals)
				}
				if err := lease.Release(); !errors.Is(err, holdfast.ErrMaxHold) {
					t.Errorf("Release returned %v", err)
				}
				synctest.Wait()
				w.free("x", "the holder has stopped")
			})
		})
	}
}

// TestMaxHoldPassesDuringRenewal: suppose a renewal is under way when the maximum hold is over. Its
// answer does not move the deadline and causes no doubt, but the lease is lost if the answer is
// that the hold is gone.
func TestMaxHoldPassesDuringRenewal(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		end    time.Duration
		reason error
		byHand bool
	}{
		{name: "renewed", end: 29400 * time.Millisecond, reason: holdfast.ErrMaxHold},
		{name: "renewed by hand", end: 29400 * time.Millisecond, reason: holdfast.ErrMaxHold, byHand: true},
		{name: "failed", answer: errStore, end: 29400 * time.Millisecond, reason: holdfast.ErrMaxHold},
		{name: "failed by hand", answer: errStore, end: 29400 * time.Millisecond,
			reason: holdfast.ErrMaxHold, byHand: true},
		{name: "gone", answer: holdfast.ErrBroken, end: 14 * time.Second, reason: holdfast.ErrBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var told expiries
				client, f := w.client(told.options())
				f.set(func() {
					f.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
						out := d.Renew(ctx, g)
						time.Sleep(4 * time.Second)
						out[0].Err = c.answer
						return out
					}
				})
				options := holdfast.Options{MaxHold: 12 * time.Second}
				if c.byHand {
					options.RenewEvery = -1
				}
				lease := w.acquire(client.Mutex("x", &options))
				if c.byHand {
					time.Sleep(10 * time.Second)
					if err := lease.Renew(w.ctx); !errors.Is(err, holdfast.ErrMaxHold) {
						t.Errorf("Renew returned %v", err)
					}
				}
				<-lease.Done()
				if d := time.Since(told.start); d != c.end || !errors.Is(lease.Err(), c.reason) {
					t.Errorf("it ended after %v: %v; want %v and %v", d, lease.Err(), c.end, c.reason)
				}
				synctest.Wait()
				if len(told.at) != 1 || told.until[0] != 29400*time.Millisecond || told.doubt != 0 {
					t.Errorf("told at %v that it ends at %v, and %d doubts",
						told.at, told.until, told.doubt)
				}
			})
		})
	}
}

// TestMaxHoldLateTimer: the clock decides when the maximum hold is over. A host that was
// suspended meanwhile does not renew before its timers have fired.
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

// TestMaxHoldOfSharedLeases: the maximum counts from the taking of the hold, for all of its leases.
// Reenter and Downgrade do not change it.
func TestMaxHoldOfSharedLeases(t *testing.T) {
	inWorld(t, func(w *world) {
		var told expiries
		c, _ := w.client(told.options())
		lease := w.acquire(c.Mutex("x", &holdfast.Options{MaxHold: 25 * time.Second}))
		time.Sleep(9 * time.Second)
		if err := lease.Downgrade(w.ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(11 * time.Second)
		again, err := lease.Reenter() // after a renewal at 19 s
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // beyond the maximum
		if err := errors.Join(lease.Err(), again.Downgrade(w.ctx)); err != nil {
			t.Error(err)
		}
		<-lease.Done()
		<-again.Done()
		if d := time.Since(told.start); d != 19*time.Second+29400*time.Millisecond {
			t.Errorf("it ended after %v", d)
		}
		if !errors.Is(lease.Err(), holdfast.ErrMaxHold) ||
			!errors.Is(again.Err(), holdfast.ErrMaxHold) || len(told.at) != 1 ||
			told.at[0] != 25*time.Second {
			t.Errorf("ended by %v and %v, told at %v", lease.Err(), again.Err(), told.at)
		}
	})
}

// TestMaxHoldHandedOver: each holder of a cohort has its own maximum, counted from when it got the
// hold. It inherits only the trust deadline.
func TestMaxHoldHandedOver(t *testing.T) {
	withBlocks(t, func(w *world) {
		var told expiries
		c, f := w.client(told.options())
		q, first := w.contendBy(c.Mutex("n", &holdfast.Options{MaxHold: time.Millisecond}),
			c.Mutex("n", &holdfast.Options{MaxHold: time.Minute}), c.Mutex("n", nil))
		start := time.Now()
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(told.at) != 1 {
			t.Fatalf("the first holder's maximum was reported %d times", len(told.at))
		}
		deadline := first.ValidUntil()
		tries := f.releases.Load()
		w.release(first)
		second := q.next("it was handed over")
		if f.releases.Load() != tries {
			t.Error("the store was asked")
		}
		if d := second.ValidUntil().Sub(deadline); d > 0 {
			t.Errorf("P1: the next trusts it for %v longer", d)
		}
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if len(told.at) != 2 {
			t.Fatalf("after 70 s %d expiries have been reported", len(told.at))
		}
		if d := told.at[1] - time.Duration(start.Sub(told.start)); d != time.Minute+2*time.Millisecond {
			t.Errorf("the second holder's maximum was over after %v", d)
		}
		w.release(second)
		third := q.next("it is free")
		time.Sleep(time.Hour)
		if err := third.Err(); err != nil {
			t.Errorf("a holder without a maximum: %v", err)
		}
		w.release(third)
	})
}
