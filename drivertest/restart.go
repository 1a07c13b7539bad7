package drivertest

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// restartCases run one by one, and only if the harness can restart the store. They assert what the driver's
// Guarantees promise of a restart.
var restartCases = []testCase{
	{name: "a hold survives", run: func(t *trial, a, b driver.Driver) {
		keeps := t.caps.Guarantees.Faults[driver.StoreRestart].Exclusion != driver.Breaks
		r := t.request()
		ends := t.now().Add(r.TTL)
		g := t.take(a, r)
		t.h.Restart(t.TB)
		if !t.within(reconnects, func() bool { // the client may need a moment to connect again
			if next, err := b.Try(t.ctx, t.request()); err == nil {
				if now := t.now(); keeps && now < ends {
					t.Errorf("P1: after a restart of the store a name was granted again, %v before its holder's TTL ended", ends.Sub(now))
				}
				b.Release(t.ctx, []driver.Grant{next})
				return true
			}
			r := t.renew1(a, g)
			if driver.Gone(r.Err) && keeps && t.now() < ends {
				t.Fatalf("P1: after a restart of the store a hold was gone: %v", r.Err)
			}
			return r.Err == nil
		}) {
			t.Errorf("P7: the store did not serve within %v of its restart", reconnects)
		}
	}},
	{name: "tokens increase, and releases arrive", run: func(t *trial, a, b driver.Driver) {
		before := t.take(a, t.request())
		t.release(a, before)
		t.h.Restart(t.TB)
		g := t.served(a)
		if t.caps.Fencing && t.caps.Guarantees.Faults[driver.StoreRestart].Tokens != driver.Breaks {
			t.higher(g, before.Token, "the store was restarted in between")
		}
		// Renewals and releases may have connections of their own, which break now.
		if !t.within(reconnects, func() bool { err := t.release1(a, g); return err == nil || driver.Gone(err) }) {
			t.Fatalf("P4: the holder's release failed for %v after a restart", reconnects)
		}
		t.served(b)
	}},
}

// reconnects is how long clients may need after a restart.
const reconnects = 10 * time.Second

// served takes the name, again and again until the store serves.
func (t *trial) served(d driver.Driver) (g driver.Grant) {
	t.Helper()
	var err error
	if !t.within(reconnects, func() bool {
		r := t.request()
		if g, err = t.try1(d, r); err != nil {
			ctx, cancel := context.WithTimeout(t.ctx, time.Second)
			defer cancel()
			d.Release(ctx, []driver.Grant{{Request: r}})
		}
		return err == nil
	}) {
		t.Fatalf("P7: the store did not serve within %v of its restart: %v", reconnects, err)
	}
	return g
}
