package drivertest

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// lateCases hold replies back on their way to the driver. Suppose that the reply to
// a renewal takes 5 s: a driver that counts the TTL from its arrival trusts the hold
// for 5 s after the store has given it to another client (P1).
var lateCases = []testCase{
	{name: "a late reply to a try counts from its request", kinds: modes, run: func(t *trial) { t.late(tries) }},
	{name: "a late reply to a renewal counts from its request", kinds: modes, run: func(t *trial) { t.late(renews) }},
	{name: "a late reply of the queue counts from its request", need: queues, kinds: modes, run: func(t *trial) { t.late(enqueues) }},
	{name: "a late reply that hands over counts from its request", need: queues, kinds: modes, run: func(t *trial) { t.late(collects) }},
	{name: "a late reply to a downgrade counts from its request", need: downgrades, run: func(t *trial) { t.late(lowers) }},
	{name: "a late reply to a raise counts from its request", need: raises, run: func(t *trial) { t.late(lifts) }},
}

// localCases are for stores without a transport.
var localCases = []testCase{
	{name: "a try counts from its request", kinds: modes, serial: true, run: func(t *trial) { t.countsFromRequest(tries) }},
	{name: "a renewal counts from its request", kinds: modes, serial: true, run: func(t *trial) { t.countsFromRequest(renews) }},
	{name: "an answer of the queue counts from its request", need: queues, kinds: modes, serial: true, run: func(t *trial) { t.countsFromRequest(enqueues) }},
	{name: "an answer that hands over counts from its request", need: queues, kinds: modes, serial: true, run: func(t *trial) { t.countsFromRequest(collects) }},
	{name: "a downgrade counts from its request", need: downgrades, serial: true, run: func(t *trial) { t.countsFromRequest(lowers) }},
	{name: "a raise counts from its request", need: raises, serial: true, run: func(t *trial) { t.countsFromRequest(lifts) }},
}

// asks prepares a client, and returns a function that sends one request and returns the
// Since of the answer.
type asks func(*trial, driver.Driver) func() (driver.Instant, error)

func tries(t *trial, d driver.Driver) func() (driver.Instant, error) {
	t.release(d, t.take(d, t.hold())) // so that the driver is connected
	return func() (driver.Instant, error) {
		g, err := t.try1(d, t.elsewhere())
		return g.Since, err
	}
}

func renews(t *trial, d driver.Driver) func() (driver.Instant, error) {
	g := t.take(d, t.hold())
	return func() (driver.Instant, error) {
		r := t.renew1(d, g)
		return r.Since, r.Err
	}
}

func enqueues(t *trial, d driver.Driver) func() (driver.Instant, error) {
	t.release(d, t.take(d, t.hold()))
	return func() (driver.Instant, error) {
		g, err := t.enqueue(d, t.elsewhere())
		return g.Since, err
	}
}

// collects asks again by Enqueue for a hold that was handed over.
func collects(t *trial, d driver.Driver) func() (driver.Instant, error) {
	other := t.open()
	before := t.take(other, t.rival())
	r := t.hold()
	t.queued(d, r)
	t.release(other, before)
	return func() (driver.Instant, error) {
		g, err := t.enqueue(d, r)
		return g.Since, err
	}
}

func lowers(t *trial, d driver.Driver) func() (driver.Instant, error) {
	g := t.take(d, t.request())
	return func() (driver.Instant, error) {
		shared, err := wrap.Forward{Driver: d}.Downgrade(t.ctx, g)
		return shared.Since, err
	}
}

func lifts(t *trial, d driver.Driver) func() (driver.Instant, error) {
	g := t.take(d, t.request())
	g.Raised = true
	return func() (driver.Instant, error) {
		r := t.raise1(d, g)
		return r.Since, r.Err
	}
}

// elsewhere returns a request for another name, which is unused.
func (t *trial) elsewhere() driver.Request {
	r := t.hold()
	r.Name = t.freshName()
	return r
}

// latePauses are how long replies are held back. A driver that counts from the arrival of
// the reply fails in each. Suppose that the machine stands still, and a good driver sends
// its request only after the first pause: then it passes in the second.
var latePauses = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond,
	800 * time.Millisecond, 3200 * time.Millisecond}

// late sends a request while replies are held back, lets the reply through, and checks that
// the TTL counts from an instant before that.
func (t *trial) late(asks asks) {
	d, wire := t.wired()
	ask := asks(t, d)
	after := time.Duration(0)
	pauses := latePauses
	if t.h.slack != 0 {
		pauses = pauses[:2]
	}
	for _, pause := range pauses {
		type reply struct {
			since driver.Instant
			err   error
		}
		replies := make(chan reply, 1)
		wire.HoldReplies()
		go func() {
			since, err := ask()
			replies <- reply{since, err}
		}()
		time.Sleep(pause)
		healed := t.clock.Now()
		wire.Heal()
		got := <-replies
		if got.err != nil {
			t.Fatalf("P2: a request whose reply came after %v failed: %v", pause, got.err)
		}
		if got.since <= healed {
			return
		}
		after = got.since.Sub(healed)
	}
	t.Errorf("P1: a reply was held back, and its hold counts from %v after it was let through; Since MUST be read before the request is sent", after)
}

// How many calls countsFromRequest makes, and how long each must take to prove anything.
const (
	slowCalls = 20
	slowCall  = 5 * time.Millisecond
)

// countsFromRequest checks Since without a transport. A driver that reads the clock after the
// reply does so at the end of each call. If many calls took long, and the TTL of each counts
// from the last tenth of the call, that is no accident.
func (t *trial) countsFromRequest(asks asks) {
	ask := asks(t, t.open())
	for range slowCalls {
		begun := t.clock.Now()
		since, err := ask()
		took := t.clock.Now().Sub(begun)
		if err != nil {
			t.Fatalf("P7: a request for a free name, or a renewal of a live hold, failed: %v", err)
		}
		if took < slowCall || since <= begun.Add(took*9/10) {
			return
		}
	}
	t.Errorf("P1: each of %d calls took long, and counts from its last tenth; Since MUST be read before the request is sent",
		slowCalls)
}
