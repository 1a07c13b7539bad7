package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

var faultsCases = []testCase{
	{name: "a lost reply is withdrawn", run: lostReply},
	{name: "a lost request is withdrawn", run: lostRequest},
	{name: "a request later than its withdrawal", run: lateRequest},
	{name: "a queued request later than its withdrawal", need: queues, run: lateEnqueue},
	{name: "a try that is given up leaves nothing", run: givenUp},
	{name: "a cut holder loses its hold", time: true, run: cutHolder},
	{name: "a cut waiter delays at most two polls", need: queues, run: cutWaiter},
	{name: "everything twice", run: everythingTwice},
	{name: "a history with faults, scanned", run: faultyScans},
	{name: "a history with faults, linearizable", run: faultyLinear},
}

// chaotic returns a client into which package chaos injects faults.
func (t *trial) chaotic(o chaos.Options) *chaos.Driver {
	d := chaos.New(t.h.Open(t.TB), o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("P9: Close: %v", err)
		}
	})
	return d
}

// lost sends a Try by a client that loses requests, or replies, and returns the grant that
// is to be withdrawn.
func (t *trial) lost(o chaos.Options, r driver.Request) driver.Grant {
	t.Helper()
	d := t.chaotic(o)
	t.track(d, r)
	g, err := d.Try(t.ctx, r)
	if !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("P6: a lost Try returned %v, not ErrUncertain", err)
	}
	return g
}

func lostReply(t *trial) {
	b := t.open()
	r := t.request()
	g := t.lost(chaos.Options{DropReply: 1}, r)
	t.refused(b, t.request(),
		"P1: the name of a request whose reply was lost was granted before it was withdrawn")
	if err := t.release1(b, g); err != nil && !driver.Gone(err) {
		t.Errorf("P6: withdrawing a request whose reply was lost failed: %v", err)
	}
	t.freeNow(b, t.request(),
		"P6: a request whose reply was lost still holds the name after its withdrawal")
}

func lostRequest(t *trial) {
	b := t.open()
	g := t.lost(chaos.Options{DropRequest: 1}, t.request())
	if err := t.release1(b, g); err != nil && !driver.Gone(err) {
		t.Errorf("P6: withdrawing a request that was lost failed: %v", err)
	}
	t.freeNow(b, t.request(), "P6: withdrawing a request that was lost closed the name")
}

// overtake calls ask while requests are held back, withdraws the request, and lets it arrive
// after that.
func (t *trial) overtake(ask func(context.Context, *chaos.Driver, driver.Request) error) {
	t.Helper()
	a, b := t.chaotic(chaos.Options{}), t.open()
	r := t.request()
	t.track(b, r)
	a.HoldRequests()
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Millisecond)
	defer cancel()
	if err := ask(ctx, a, r); !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("P6: a request held back returned %v, not ErrUncertain", err)
	}
	t.withdraw(b, r)
	a.ReleaseRequests()
	t.freeNow(b, t.request(), "P6: a request that arrived after its withdrawal took effect")
	if t.can.has(opOperator) {
		if info := t.inspect(b); !info.Idle() {
			t.Errorf("P6: a request that arrived after its withdrawal left %+v", info)
		}
	}
}

func lateRequest(t *trial) {
	t.overtake(func(ctx context.Context, d *chaos.Driver, r driver.Request) error {
		_, err := d.Try(ctx, r)
		return err
	})
}

func lateEnqueue(t *trial) {
	t.overtake(func(ctx context.Context, d *chaos.Driver, r driver.Request) error {
		_, err := d.Enqueue(ctx, r)
		return err
	})
}

func cutHolder(t *trial) {
	a, wire := t.wired()
	b := t.open()
	g := t.take(a, t.brief())
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
	end := time.Now().Add(max(10*time.Second, t.slack))
	for r = t.renew1(a, g); r.Err != nil && !driver.Gone(r.Err) && time.Now().Before(end); r = t.renew1(a, g) {
		time.Sleep(t.tick())
	}
	if !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("P2: renewing an expired hold after the partition returned %v, not ErrNotHeld", r.Err)
	}
	t.renew(b, next)
}

func cutWaiter(t *trial) {
	a, wire := t.wired()
	b := t.open()
	r := t.request()
	r.TTL = max(r.TTL, 12*t.poll+2*t.slack)
	g := t.take(b, r)
	away, live := t.request(), t.request()
	away.TTL = r.TTL
	t.queued(a, away)
	t.queued(b, live)
	w := t.waitFor(b, live)
	wire.Cut()
	defer wire.Heal() // before what is left is withdrawn
	t.release(b, g)
	t.granted(w, 3*t.poll+t.caps.Guarantees.Lateness,
		"P7: a waiter that is cut off delays a live one by more than two polls")
}

// everythingTwice: a client library may send a request again whose reply was lost, so each
// request may arrive twice.
func everythingTwice(t *trial) {
	a, b := t.chaotic(chaos.Options{Duplicate: 1}), t.open()
	g := t.take(a, t.request())
	g = t.renew(a, g)
	t.release(a, g)
	next := t.take(b, t.request())
	t.release1(a, g)
	t.renew(b, next)
	t.refused(a, t.request(), "P4: a release that arrived twice freed the next hold")
	t.release(b, next)
	if t.can.has(opQueue) {
		g := t.take(b, t.request())
		r := t.request()
		t.queued(a, r)
		t.release(b, g)
		t.release(a,
			t.arrives(a, r, t.poll, "P7: a waiter that asks twice was not granted the free name"))
	}
	t.freeNow(b, t.request(), "P6: a request that arrived twice holds the name or waits for it")
}

// withFaults returns what opens the clients of a random history: package chaos injects
// faults into each.
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

func faultyScans(t *trial)  { t.scanned(t.withFaults(), t.operations()/2) }
func faultyLinear(t *trial) { t.linearized(t.withFaults(), t.operations()/2, faultyPiece) }

// faultyPiece is shorter than maxPiece: for the checker an operation without a reply lasts until it is
// withdrawn, or until the end of the piece: see boundUnknown.
const faultyPiece = 250
