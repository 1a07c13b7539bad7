package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// unansweredCases let requests arrive, and keep the replies from the driver. Suppose that the
// store grants the hold, the reply is lost, and the driver returns a plain error: then its
// caller does not withdraw the request, and the name stays closed although nobody holds it
// (P6).
var unansweredCases = []testCase{
	{name: "a try without an answer is uncertain", run: func(t *trial) { t.unanswered(interrupted{}) }},
	{name: "a try whose connection breaks is uncertain", run: func(t *trial) { t.unanswered(interrupted{cut: true}) }},
	{name: "a place without an answer is uncertain", need: queues, run: func(t *trial) { t.unanswered(interrupted{place: true}) }},
	{name: "a place whose connection breaks is uncertain", need: queues, run: func(t *trial) { t.unanswered(interrupted{place: true, cut: true}) }},
	{name: "a try later than its withdrawal", run: lateOnTheWire},
}

// interrupted says how a request is interrupted.
type interrupted struct {
	place bool // it asks for a place behind a holder, not for a free name
	cut   bool // its connection breaks; false: its context ends
}

// attempts is how many requests a case interrupts. The first gets no reply for certain. Of
// each later one the replies are held back a little later, so that of a driver which sends
// several messages for one request each is interrupted once.
const attempts = 8

// patience is how long a driver may need to connect again.
func (s *suite) patience() time.Duration { return max(15*time.Second, s.slack) }

func (t *trial) unanswered(in interrupted) {
	b := t.open()
	d, wire := t.wired()
	for i := range attempts {
		typical := t.connected(d)
		r := t.elsewhere()
		t.track(b, r)
		holder := driver.Grant{}
		if in.place {
			holder = t.holder(b, r)
		}
		if i == 0 {
			wire.HoldReplies()
		}
		done, cancel := t.asking(d, r, in.place)
		if i > 0 {
			time.Sleep(typical * time.Duration(i) / attempts)
			wire.HoldReplies()
		}
		t.seen(b, r, in.place)
		if in.cut {
			wire.Cut()
			time.AfterFunc(50*time.Millisecond, wire.Heal) // so that the driver can connect again
			time.AfterFunc(time.Second, cancel)
		} else {
			cancel()
		}
		select {
		case a := <-done:
			wire.Heal()
			if in.place {
				t.release(b, holder)
			}
			t.leavesNothing(d, b, r, a)
		case <-time.After(t.patience()):
			t.Fatalf("P11: a request goes on %v after its context has ended", t.patience())
		}
		cancel()
	}
}

// holder takes the name that r asks for, as another owner.
func (t *trial) holder(d driver.Driver, r driver.Request) driver.Grant {
	t.Helper()
	r.Owner = newOwner()
	return t.take(d, r)
}

// answer is what a call of the driver returned.
type answer struct {
	grant driver.Grant
	err   error
}

// asking calls Try or Enqueue in a goroutine.
func (t *trial) asking(d driver.Driver, r driver.Request, place bool) (<-chan answer, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.ctx)
	ask := d.Try
	if place {
		q, ok := driver.As[driver.Queuer](d)
		if !ok {
			t.Fatalf("P10: one client is a Queuer, and another is not")
		}
		ask = q.Enqueue
	}
	done := make(chan answer, 1)
	go func() {
		g, err := ask(ctx, r)
		done <- answer{g, err}
	}()
	return done, cancel
}

// connected waits until a driver is connected, and returns how long a Try takes it. A driver may have
// more than one connection, so one that can take a name may still find that it cannot release it.
func (t *trial) connected(d driver.Driver) time.Duration {
	t.Helper()
	for end := time.Now().Add(t.patience()); ; time.Sleep(t.tick()) {
		r := t.elsewhere()
		t.track(d, r)
		begun := time.Now()
		g, err := d.Try(t.ctx, r)
		took := time.Since(begun)
		if err == nil {
			if err = t.release1(d, g); err == nil {
				return took
			}
		}
		t.withdrawn(d, answer{driver.Grant{Request: r, Handle: g.Handle}, err})
		if time.Now().After(end) {
			t.Fatalf("P7: a client cannot take and release a free name %v after its connections were cut: %v",
				t.patience(), err)
		}
	}
}

// withdrawn withdraws a request as package holdfast does: again and again until it succeeds.
func (t *trial) withdrawn(d driver.Driver, a answer) {
	t.Helper()
	g := a.grant
	if a.err != nil {
		g.Token = 0
	}
	for end := time.Now().Add(t.patience()); ; time.Sleep(t.tick()) {
		err := t.release1(d, g)
		if err == nil || driver.Gone(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("P6: a request cannot be withdrawn within %v: %v", t.patience(), err)
		}
	}
}

// seen waits until Inspect shows the effect of the request, or for a moment: the request may
// not have arrived, and not every store can be inspected.
func (t *trial) seen(d driver.Driver, r driver.Request, place bool) {
	inspector, ok := driver.As[driver.Operator](d)
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !ok {
			continue
		}
		info, err := inspector.Inspect(t.ctx, r.Name)
		if err == nil && (place && len(info.Waiters) > 0 || !place && len(info.Holders) > 0) {
			return
		}
	}
}

// leavesNothing withdraws the request where the contract of Try asks its caller to, and then
// checks by another client that the name is free.
func (t *trial) leavesNothing(d, b driver.Driver, r driver.Request, a answer) {
	t.Helper()
	other := r
	other.Owner = newOwner()
	if a.err == nil || errors.Is(a.err, driver.ErrUncertain) || errors.Is(a.err, driver.ErrHeld) {
		a.grant.Request = r
		t.withdrawn(d, a)
		t.freeNow(b, other, "P6: a request that was withdrawn holds the name or waits for it")
		return
	}
	// Any other error says that the store has certainly not granted the hold.
	for range 3 {
		g, err := t.try1(b, other)
		if err != nil {
			t.Errorf("P6: a request failed with %q, which is not ErrUncertain, and yet the name is closed for it: %v",
				a.err, err)
			return
		}
		t.release(b, g)
		time.Sleep(5 * time.Millisecond)
	}
}

// lateOnTheWire: the context of a request ends while the request is on its way. It is
// withdrawn over another connection, and arrives after that.
func lateOnTheWire(t *trial) {
	b := t.open()
	d, wire := t.wired()
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
		t.withdrawn(b, answer{driver.Grant{Request: r, Handle: g.Handle}, err})
	}
	wire.Heal()
	for range 10 {
		t.freeNow(b, t.request(), "P6: a request that arrived after its withdrawal took effect")
		time.Sleep(10 * time.Millisecond)
	}
}

// givenUp ends the contexts of requests that are under way, which needs no transport. On a
// store that answers at once it proves little.
func givenUp(t *trial) {
	d, b := t.open(), t.open()
	typical := t.connected(d)
	for i := range attempts {
		r := t.elsewhere()
		t.track(b, r)
		done, cancel := t.asking(d, r, false)
		time.Sleep(typical * time.Duration(i) / (attempts - 2))
		cancel()
		t.leavesNothing(d, b, r, <-done)
	}
}
