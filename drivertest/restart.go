package drivertest

import (
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// restartCases run one by one, and only if the harness can restart the store. They assert
// what the driver's Guarantees promise of a restart.
var restartCases = []testCase{
	{name: "a hold survives", run: holdSurvives},
	{name: "tokens increase", need: fences, run: tokensAfterRestart},
	{name: "the store serves again", run: servesAgain},
}

// keeps reports whether a verdict promises that nothing breaks.
func keeps(e driver.Effect) bool { return e != driver.Breaks }

func holdSurvives(t *trial) {
	a, b := t.open(), t.open()
	verdict := t.caps.Guarantees.Faults[driver.StoreRestart].Exclusion
	r := t.request()
	start := t.now()
	g := t.take(a, r)
	t.h.Restart(t.TB)
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	for ctx.Err() == nil { // the client may need a moment to connect again
		next, err := b.Try(ctx, t.request())
		if err == nil {
			if now := t.now(); keeps(verdict) && now < start.Add(r.TTL) {
				t.Errorf("P1: after a restart of the store a name was granted again, %v before its holder's TTL ended",
					start.Add(r.TTL).Sub(now))
			}
			b.Release(ctx, []driver.Grant{next})
			return
		}
		if r := t.renew1(a, g); r.Err == nil {
			t.release(a, g)
			return
		} else if driver.Gone(r.Err) && keeps(verdict) && t.now() < start.Add(g.TTL) {
			t.Errorf("P1: after a restart of the store a hold was gone: %v", r.Err)
			return
		}
		time.Sleep(t.tick())
	}
	t.Errorf("P7: the store did not serve within 10 s of its restart")
}

func tokensAfterRestart(t *trial) {
	a := t.open()
	g := t.take(a, t.request())
	t.release(a, g)
	t.h.Restart(t.TB)
	next := t.served(t.open())
	if keeps(t.caps.Guarantees.Faults[driver.StoreRestart].Tokens) {
		t.higher(next, g.Token, "the store was restarted in between")
	}
}

func servesAgain(t *trial) {
	before := t.open()
	t.release(before, t.take(before, t.request()))
	t.h.Restart(t.TB)
	g := t.served(before)
	// Renewals and releases may have connections of their own, which break now. Package holdfast repeats
	// a release, too.
	end := time.Now().Add(10 * time.Second)
	for {
		err := t.release1(before, g)
		if err == nil || driver.Gone(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("P4: the holder's release failed for 10 s after a restart: %v", err)
		}
		time.Sleep(t.tick())
	}
	t.freeNow(t.open(), t.request(), "P4: a release after a restart did not free the name")
}

// served takes the name, again and again until the store serves.
func (t *trial) served(d driver.Driver) driver.Grant {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for {
		r := t.request()
		g, err := t.try1(d, r)
		if err == nil {
			return g
		}
		t.withdrawSoon(d, r)
		if time.Now().After(end) {
			t.Fatalf("P7: the store did not serve within 10 s of its restart: %v", err)
		}
		time.Sleep(t.tick())
	}
}

// withdrawSoon withdraws a request if the store can be reached.
func (t *trial) withdrawSoon(d driver.Driver, r driver.Request) {
	ctx, cancel := context.WithTimeout(t.ctx, time.Second)
	defer cancel()
	d.Release(ctx, []driver.Grant{{Request: r}})
}
