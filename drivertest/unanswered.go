package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// unansweredCases let requests arrive, and keep the replies from the driver. If the driver returned a plain error,
// its caller would not withdraw the request, and the name would stay closed although nobody holds it (P6).
var unansweredCases = []testCase{
	{name: "a try without an answer is uncertain", wired: unanswered(false, false)},
	{name: "a try whose connection breaks is uncertain", wired: unanswered(false, true)},
	{name: "a place without an answer is uncertain", need: queues, wired: unanswered(true, false)},
	{name: "a place whose connection breaks is uncertain", need: queues, wired: unanswered(true, true)},
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

// givenUp ends the contexts of requests that are under way, or about to be, which needs no transport. On a store that
// answers at once it proves little.
func givenUp(t *trial, a, b driver.Driver) {
	typical := t.connected(a)
	for i := range attempts {
		r := t.elsewhere()
		t.track(b, r)
		ctx, cancel := context.WithCancel(t.ctx)
		if i == 0 {
			cancel()
		}
		done := asking(ctx, a.Try, r)
		time.Sleep(typical * time.Duration(i) / (attempts - 2))
		cancel()
		t.leavesNothing(a, b, r, <-done)
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
