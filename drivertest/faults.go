package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// faultsCases lose, delay and repeat messages between a client and its store by package chaos.
var faultsCases = []testCase{
	{name: "a lost reply is withdrawn", run: func(t *trial, _, b driver.Driver) {
		for _, o := range []chaos.Options{{DropReply: 1}, {DropRequest: 1}} {
			a, r := t.chaotic(o), t.request()
			t.track(a, r)
			g, err := a.Try(t.ctx, r)
			if !errors.Is(err, driver.ErrUncertain) {
				t.Fatalf("P6: a lost Try returned %v, not ErrUncertain", err)
			}
			if o.DropReply == 1 {
				t.refused(b, t.request(), "P1: the name of a request whose reply was lost was granted before it was withdrawn")
			}
			if err := t.release1(b, g); err != nil && !driver.Gone(err) {
				t.Errorf("P6: withdrawing a request that was lost failed: %v", err)
			}
			t.freeNow(b, t.request(), "P6: a request that was lost still holds the name after its withdrawal")
		}
	}},
	{name: "a request later than its withdrawal", run: func(t *trial, _, b driver.Driver) {
		a := t.chaotic(chaos.Options{})
		asks := []func(context.Context, driver.Request) (driver.Grant, error){a.Try, a.Enqueue}
		if !t.can(opQueue) {
			asks = asks[:1]
		}
		for _, ask := range asks {
			r := t.request()
			t.track(b, r)
			a.HoldRequests()
			ctx, cancel := context.WithTimeout(t.ctx, 5*time.Millisecond)
			if _, err := ask(ctx, r); !errors.Is(err, driver.ErrUncertain) {
				t.Fatalf("P6: a request held back returned %v, not ErrUncertain", err)
			}
			cancel()
			t.withdraw(b, r)
			a.ReleaseRequests()
			t.freeNow(b, t.request(), "P6: a request that arrived after its withdrawal took effect")
			if t.can(opOperator) {
				t.idle(b, t.name)
			}
		}
	}},
	{name: "a try that is given up leaves nothing", kinds: modes, run: givenUp},
	{name: "a cut holder loses its hold", time: true, wired: cutHolder},
	{name: "a cut waiter delays at most two polls", need: queues, wired: func(t *trial, d driver.Driver, wire Transport, b driver.Driver) {
		defer wire.Heal() // before what is left is withdrawn
		t.deadWaiter(b, d, b, func() time.Duration {
			wire.Cut()
			return 3 * t.poll
		})
	}},
	// A client library may send a request again whose reply was lost.
	{name: "everything twice", run: func(t *trial, _, b driver.Driver) {
		a := t.chaotic(chaos.Options{Duplicate: 1})
		g := t.renew(a, t.take(a, t.request()))
		t.release(a, g)
		next := t.take(b, t.request())
		t.leaves(a, g, b, next)
		if t.can(opQueue) {
			r := t.request()
			t.queued(a, r)
			t.release(b, next)
			next = t.arrives(a, r, "P7: a waiter that asks twice was not granted the free name")
		}
		t.release(a, next)
		t.freeNow(b, t.request(), "P6: a request that arrived twice holds the name or waits for it")
	}},
	{name: "a history with faults, scanned", alone: func(t *trial) { t.scanned(t.withFaults(), t.operations()/2) }},
	// An operation without a reply lasts until it is withdrawn: see boundUnknown. So the pieces are short.
	{name: "a history with faults, linearizable", alone: func(t *trial) { t.linearized(t.withFaults(), t.operations()/2, 250) }},
}

// chaotic returns a client into which package chaos injects faults.
func (t *trial) chaotic(o chaos.Options) *chaos.Driver {
	return closes(t, chaos.New(t.h.Open(t.TB), o))
}

// withFaults returns what opens the clients of a random history: package chaos injects faults into each.
func (t *trial) withFaults() func() driver.Driver {
	if t.h.Plain {
		return t.open
	}
	seed := t.seed
	return func() driver.Driver {
		seed++
		return t.chaotic(chaos.Options{
			Seed: seed, Delay: 0.1, DropRequest: 0.01, DropReply: 0.02, HoldReply: 0.05, Duplicate: 0.05, Partition: 0.002,
			MaxDelay: 5 * time.Millisecond,
		})
	}
}

func cutHolder(t *trial, a driver.Driver, wire Transport, b driver.Driver) {
	g := t.take(a, t.brief(t.request()))
	wire.Cut()
	ctx, cancel := context.WithTimeout(t.ctx, min(t.ttl/4, 100*time.Millisecond))
	r := a.Renew(ctx, []driver.Grant{g})[0]
	cancel()
	if r.Err == nil {
		t.Errorf("P2: a renewal that cannot have reached the store succeeded")
	} else if driver.Gone(r.Err) {
		t.Errorf("P2: a client that is cut off claims to know that its hold is gone: %v", r.Err)
	}
	t.outlive(t.ttl)
	next := t.take(b, t.request())
	wire.Heal()
	t.within(t.patience(), func() bool {
		r = t.renew1(a, g)
		return r.Err == nil || driver.Gone(r.Err)
	})
	if !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("P2: renewing an expired hold after the partition returned %v, not ErrNotHeld", r.Err)
	}
	t.renew(b, next)
}
