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
	{name: "a cut holder loses its hold", time: true, wired: cutHolder},
	{name: "a cut waiter delays at most two polls", need: opQueue, wired: func(t *trial, d driver.Driver, wire Transport, b driver.Driver) {
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

// unansweredCases let requests arrive, and keep the replies from the driver. If the driver returned a plain error,
// its caller would not withdraw the request, and the name would stay closed although nobody holds it (P6).
var unansweredCases = []testCase{
	{name: "a try without an answer is uncertain", wired: unanswered(false, false)},
	{name: "a try whose connection breaks is uncertain", wired: unanswered(false, true)},
	{name: "a place without an answer is uncertain", need: opQueue, wired: unanswered(true, false)},
	{name: "a place whose connection breaks is uncertain", need: opQueue, wired: unanswered(true, true)},
	// The context of a request ends while the request is on its way. It is withdrawn over another connection, and
	// arrives after that.
	{name: "a try later than its withdrawal", wired: func(t *trial, d driver.Driver, wire Transport, b driver.Driver) {
		t.connected(d)
		r := t.request()
		t.track(b, r)
		wire.HoldRequests()
		ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
		defer cancel()
		g, err := d.Try(ctx, r)
		if err == nil {
			t.Fatalf("P1: a Try whose request did not arrive was granted")
		}
		if errors.Is(err, driver.ErrUncertain) {
			t.withdrawn(b, driver.Grant{Request: r, Handle: g.Handle})
		}
		wire.Heal()
		for range 10 {
			t.freeNow(b, t.request(), "P6: a request that arrived after its withdrawal took effect")
			time.Sleep(10 * time.Millisecond)
		}
	}},
}

// attempts is how many requests a case interrupts. The first gets no reply for certain. Of each later one the replies
// are held back a little later, so that of a driver which sends several messages for one request each is interrupted.
const attempts = 8

// unanswered returns a case that asks for places behind a holder, or for free names, and then cuts the connections,
// or ends the contexts.
func unanswered(place, cut bool) func(*trial, driver.Driver, Transport, driver.Driver) {
	return func(t *trial, d driver.Driver, wire Transport, b driver.Driver) {
		for i := range attempts {
			typical := t.connected(d)
			r := t.elsewhere()
			t.track(b, r)
			ask, holder := d.Try, driver.Grant{}
			if place {
				holder, ask = t.take(b, named(t.rival(), r.Name)), ops(d).Enqueue
			}
			if i == 0 {
				wire.HoldReplies()
			}
			ctx, cancel := context.WithCancel(t.ctx)
			done := asking(ctx, ask, r)
			if i > 0 {
				time.Sleep(typical * time.Duration(i) / attempts)
				wire.HoldReplies()
			}
			time.Sleep(30 * time.Millisecond) // let the request arrive
			if cut {
				wire.Cut()
				time.AfterFunc(50*time.Millisecond, wire.Heal) // so that the driver can connect again
				time.AfterFunc(time.Second, cancel)
			} else {
				cancel()
			}
			select {
			case a := <-done:
				wire.Heal()
				if place {
					t.release(b, holder)
				}
				t.leavesNothing(d, b, r, a)
			case <-time.After(t.patience()):
				t.Fatalf("P11: a request goes on %v after its context has ended", t.patience())
			}
			cancel()
		}
	}
}

// answer is what a call of the driver returned.
type answer struct {
	grant driver.Grant
	err   error
}

// asking asks in a goroutine.
func asking(ctx context.Context, ask func(context.Context, driver.Request) (driver.Grant, error), r driver.Request) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		g, err := ask(ctx, r)
		done <- answer{g, err}
	}()
	return done
}

// connected waits until a driver is connected, and returns how long a Try takes it. A driver may have more than one
// connection, so one that can take a name may still find that it cannot release it.
func (t *trial) connected(d driver.Driver) (took time.Duration) {
	t.Helper()
	var err error
	if !t.within(t.patience(), func() bool {
		r := t.elsewhere()
		t.track(d, r)
		begun := time.Now()
		g, tried := d.Try(t.ctx, r)
		took = time.Since(begun)
		if err = tried; err == nil {
			err = t.release1(d, g)
		}
		if err != nil {
			t.withdrawn(d, driver.Grant{Request: r, Handle: g.Handle})
		}
		return err == nil
	}) {
		t.Fatalf("P7: a client cannot take and release a free name %v after its connections were cut: %v", t.patience(), err)
	}
	return took
}

// leavesNothing withdraws the request where the contract of Try asks its caller to, and then checks by another client
// that the name is free. Any other error says that the store has certainly not granted the hold.
func (t *trial) leavesNothing(d, b driver.Driver, r driver.Request, a answer) {
	t.Helper()
	if errors.Is(a.err, driver.ErrUncertain) && a.grant.Owner != r.Owner {
		t.Errorf("P6: an uncertain request returned no grant to withdraw")
	}
	g, known := a.grant, a.err == nil || errors.Is(a.err, driver.ErrUncertain) || errors.Is(a.err, driver.ErrHeld)
	if known {
		g.Request = r
		if a.err != nil {
			g.Token = 0
		}
		t.withdrawn(d, g)
	}
	for range 3 {
		g, err := t.try1(b, named(t.rival(), r.Name))
		if err != nil {
			t.Errorf("P6: the name of a request that failed with %v (and was withdrawn: %t) is closed: %v", a.err, known, err)
			return
		}
		t.release(b, g)
		if known {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// counted is a request of which the reply says from when on a TTL counts. The TTL MUST count from an instant before
// the request was sent: a driver that counts from the arrival of a reply that took 5 s trusts the hold for 5 s after
// the store has given it to another client (P1).
type counted struct {
	reply string // how the case calls it
	need  abilities
	kinds []kind
	// ready prepares a client, and returns a function that sends one request and returns the Since of the reply.
	ready func(t *trial, d, other driver.Driver) func() (driver.Instant, error)
}

var allCounted = []counted{
	{"to a try", 0, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		t.release(d, t.take(d, t.hold())) // so that the driver is connected
		return func() (driver.Instant, error) { return since(t.try1(d, t.elsewhere())) }
	}},
	{"to a renewal", 0, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		g := t.take(d, t.hold())
		return func() (driver.Instant, error) {
			r := t.renew1(d, g)
			return r.Since, r.Err
		}
	}},
	{"of the queue", opQueue, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		t.release(d, t.take(d, t.hold()))
		return func() (driver.Instant, error) { return since(t.enqueue(d, t.elsewhere())) }
	}},
	{"that hands over", opQueue, modes, func(t *trial, d, other driver.Driver) func() (driver.Instant, error) {
		g, r := t.behind(other, d)
		t.release(other, g)
		return func() (driver.Instant, error) { return since(t.enqueue(d, r)) }
	}},
	{"to a downgrade", opDowngrade | opShared, nil, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		g := t.take(d, t.request())
		return func() (driver.Instant, error) { return since(ops(d).Downgrade(t.ctx, g)) }
	}},
}

func since(g driver.Grant, err error) (driver.Instant, error) { return g.Since, err }

// lateCases hold replies back on their way to the driver.
var lateCases = func() (cases []testCase) {
	for _, c := range allCounted {
		cases = append(cases, testCase{name: "a late reply " + c.reply + " counts from its request", need: c.need, kinds: c.kinds,
			wired: func(t *trial, d driver.Driver, wire Transport, b driver.Driver) { t.late(wire, c.ready(t, d, b)) }})
	}
	return cases
}()

// latePauses are how long replies are held back. A driver that counts from the arrival of the reply fails in each. A
// good driver that sends its request only after the first pause, on a busy machine, passes in the second.
var latePauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond, 3200 * time.Millisecond}

// late sends a request while replies are held back, lets the reply through, and checks that the TTL counts from an
// instant before that.
func (t *trial) late(wire Transport, ask func() (driver.Instant, error)) {
	pauses := latePauses
	if t.h.slack != 0 {
		pauses = pauses[:2]
	}
	after := time.Duration(0)
	for _, pause := range pauses {
		var since driver.Instant
		var err error
		replied := make(chan struct{})
		wire.HoldReplies()
		go func() {
			defer close(replied)
			since, err = ask()
		}()
		time.Sleep(pause)
		healed := t.clock.Now()
		wire.Heal()
		<-replied
		if err != nil {
			t.Fatalf("P2: a request whose reply came after %v failed: %v", pause, err)
		}
		if since <= healed {
			return
		}
		after = since.Sub(healed)
	}
	t.Errorf("P1: a reply was held back, and its hold counts from %v after it was let through; Since MUST be read before the request is sent", after)
}

// restartCases are run if the harness can restart the store. They assert what the driver's Guarantees promise of that.
var restartCases = []testCase{
	{name: "holds and tokens survive", run: func(t *trial, a, b driver.Driver) {
		const reconnects = 10 * time.Second // how long clients may need after a restart
		says := t.caps.Guarantees.Faults[driver.StoreRestart]
		for range 3 {
			t.release(a, t.take(a, t.request()))
		}
		r := t.request()
		ends := t.now().Add(r.TTL)
		g := t.take(a, r)
		t.h.Restart(t.TB)
		if !t.within(reconnects, func() bool {
			next, err := b.Try(t.ctx, t.request())
			if now := t.now(); err == nil && says.Exclusion != driver.Breaks && now < ends {
				t.Errorf("P1: after a restart of the store a name was granted again, %v before its holder's TTL ended", ends.Sub(now))
			}
			if err == nil {
				b.Release(t.ctx, []driver.Grant{next})
				return true
			}
			r := t.renew1(a, g)
			if driver.Gone(r.Err) && says.Exclusion != driver.Breaks && t.now() < ends {
				t.Fatalf("P1: after a restart of the store a hold was gone: %v", r.Err)
			}
			return r.Err == nil
		}) {
			t.Errorf("P7: the store did not serve within %v of its restart", reconnects)
		}
		// Renewals and releases may have connections of their own, which break now.
		if !t.within(reconnects, func() bool { err := t.release1(a, g); return err == nil || driver.Gone(err) }) {
			t.Fatalf("P4: the holder's release failed for %v after a restart", reconnects)
		}
		t.connected(b)
		next := t.take(b, t.request())
		if t.caps.Fencing && says.Tokens != driver.Breaks {
			t.higher(next, g.Token, "the store was restarted in between")
		}
	}},
}
