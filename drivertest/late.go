package drivertest

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// counted is a request of which the reply says from when on a TTL counts. The TTL MUST count from an instant before
// the request was sent: a driver that counts from the arrival of a reply that took 5 s trusts the hold for 5 s after
// the store has given it to another client (P1).
type counted struct {
	late, local string // how the cases with and without a transport call it
	need        needs
	kinds       []kind
	// ready prepares a client, and returns a function that sends one request and returns the Since of the reply.
	ready func(t *trial, d, other driver.Driver) func() (driver.Instant, error)
}

var allCounted = []counted{
	{"to a try", "a try", needs{}, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		t.release(d, t.take(d, t.hold())) // so that the driver is connected
		return func() (driver.Instant, error) { return since(t.try1(d, t.elsewhere())) }
	}},
	{"to a renewal", "a renewal", needs{}, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		g := t.take(d, t.hold())
		return func() (driver.Instant, error) {
			r := t.renew1(d, g)
			return r.Since, r.Err
		}
	}},
	{"of the queue", "an answer of the queue", queues, modes, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		t.release(d, t.take(d, t.hold()))
		return func() (driver.Instant, error) { return since(t.enqueue(d, t.elsewhere())) }
	}},
	{"that hands over", "an answer that hands over", queues, modes, func(t *trial, d, other driver.Driver) func() (driver.Instant, error) {
		g, r := t.behind(other, d)
		t.release(other, g)
		return func() (driver.Instant, error) { return since(t.enqueue(d, r)) }
	}},
	{"to a downgrade", "a downgrade", downgrades, nil, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		g := t.take(d, t.request())
		return func() (driver.Instant, error) { return since(ops(d).Downgrade(t.ctx, g)) }
	}},
	{"to a raise", "a raise", raises, nil, func(t *trial, d, _ driver.Driver) func() (driver.Instant, error) {
		g := t.take(d, t.request())
		return func() (driver.Instant, error) {
			r := t.raise1(d, g, g.Token)
			return r.Since, r.Err
		}
	}},
}

func since(g driver.Grant, err error) (driver.Instant, error) { return g.Since, err }

// lateCases hold replies back on their way to the driver. localCases are for stores without a transport.
var lateCases, localCases = func() (late, local []testCase) {
	for _, c := range allCounted {
		late = append(late, testCase{name: "a late reply " + c.late + " counts from its request", need: c.need, kinds: c.kinds,
			wired: func(t *trial, d driver.Driver, wire Transport, b driver.Driver) { t.late(wire, c.ready(t, d, b)) }})
		local = append(local, testCase{name: c.local + " counts from its request", need: c.need, kinds: c.kinds, serial: true,
			run: func(t *trial, a, b driver.Driver) { t.countsFromRequest(c.ready(t, a, b)) }})
	}
	return late, local
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

// countsFromRequest checks Since without a transport. A driver that reads the clock after the reply does so at the
// end of each call. If many calls take long, and the TTL of each counts from the last tenth of the call, that is no
// accident.
func (t *trial) countsFromRequest(ask func() (driver.Instant, error)) {
	const calls, long = 20, 5 * time.Millisecond
	for range calls {
		begun := t.clock.Now()
		since, err := ask()
		took := t.clock.Now().Sub(begun)
		if err != nil {
			t.Fatalf("P7: a request for a free name, or a renewal of a live hold, failed: %v", err)
		}
		if took < long || since <= begun.Add(took*9/10) {
			return
		}
	}
	t.Errorf("P1: each of %d calls took long, and counts from its last tenth; Since MUST be read before the request is sent", calls)
}
