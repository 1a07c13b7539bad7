package drivertest

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// lateCases hold replies back on their way to the driver. Suppose that the reply to
// a renewal takes 5 s: a driver that counts the TTL from its arrival trusts the hold
// for 5 s after the store has given it to another client (P1).
var lateCases = []testCase{
	{name: "a late reply to a try counts from its request", run: func(t *trial) { t.late(tries) }},
	{name: "a late reply to a renewal counts from its request", run: func(t *trial) { t.late(renews) }},
	{name: "a late reply of the queue counts from its request", need: queues, run: func(t *trial) { t.late(enqueues) }},
}

// localCases are for stores without a transport.
var localCases = []testCase{
	{name: "a try counts from its request", serial: true, run: func(t *trial) { t.countsFromRequest(tries) }},
	{name: "a renewal counts from its request", serial: true, run: func(t *trial) { t.countsFromRequest(renews) }},
	{name: "an answer of the queue counts from its request", need: queues, serial: true, run: func(t *trial) { t.countsFromRequest(enqueues) }},
}

// asks prepares a client, and returns a function that sends one request and returns the
// Since of the answer.
type asks func(*trial, driver.Driver) func() (driver.Instant, error)

func tries(t *trial, d driver.Driver) func() (driver.Instant, error) {
	t.release(d, t.take(d, t.request())) // so that the driver is connected
	return func() (driver.Instant, error) {
		g, err := t.try1(d, t.elsewhere())
		return g.Since, err
	}
}

func renews(t *trial, d driver.Driver) func() (driver.Instant, error) {
	g := t.take(d, t.request())
	return func() (driver.Instant, error) {
		r := t.renew1(d, g)
		return r.Since, r.Err
	}
}

func enqueues(t *trial, d driver.Driver) func() (driver.Instant, error) {
	t.release(d, t.take(d, t.request()))
	return func() (driver.Instant, error) {
		g, err := t.enqueue(d, t.elsewhere())
		return g.Since, err
	}
}

// elsewhere returns a request for another name, which is unused.
func (t *trial) elsewhere() driver.Request {
	r := t.request()
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
