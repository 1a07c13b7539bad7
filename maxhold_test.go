package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
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
