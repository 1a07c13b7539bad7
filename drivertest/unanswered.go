package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// unansweredCases let the store do what it was asked, and keep the driver from
// hearing of it. Suppose that the reply is lost and the driver returns a plain error:
// its caller has no reason to withdraw, and the name stays closed for nobody (P6).
var unansweredCases = []testCase{
	{name: "a try without an answer is uncertain", run: func(t *trial) { t.unanswered(interrupted{}) }},
	{name: "a try whose connection breaks is uncertain", run: func(t *trial) { t.unanswered(interrupted{cut: true}) }},
	{name: "a place without an answer is uncertain", need: queues, run: func(t *trial) { t.unanswered(interrupted{place: true}) }},
	{name: "a place whose connection breaks is uncertain", need: queues, run: func(t *trial) { t.unanswered(interrupted{place: true, cut: true}) }},
	{name: "a try later than its withdrawal", run: lateOnTheWire},
}

// interrupted says what becomes of a request.
type interrupted struct {
	place bool // it asks for a place behind a holder, not for a free name
	cut   bool // its connection breaks; else its caller gives up
}

// attempts is how many requests a case interrupts. The first gets no reply at all; from
// then on they are held back a little later each time, so that a driver that asks several
// times meets it at each.
const attempts = 8

// patience is for what goes wrong while a driver connects again.
const patience = 15 * time.Second

func (t *trial) unanswered(how interrupted) {
	b := t.open()
	d, wire := t.wired()
	for i := range attempts {
		typical := t.connected(d)
		r := t.elsewhere()
		t.track(b, r)
		holder := driver.Grant{}
		if how.place {
			holder = t.holder(b, r)
		}
		if i == 0 {
			wire.HoldReplies()
		}
		done, cancel := t.asking(d, r, how.place)
		if i > 0 {
			time.Sleep(typical * time.Duration(i) / attempts)
			wire.HoldReplies()
		}
		t.seen(b, r, how.place)
		if how.cut {
			wire.Cut()
			time.AfterFunc(50*time.Millisecond, wire.Heal) // for drivers that connect again
			time.AfterFunc(time.Second, cancel)
		} else {
			cancel()
		}
		select {
		case a := <-done:
			wire.Heal()
			if how.place {
				t.release(b, holder)
			}
			t.leavesNothing(d, b, r, a)
		case <-time.After(patience):
			t.Fatalf("P11: a request goes on %v after its context has ended", patience)
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

// answer is what a driver returned.
type answer struct {
	grant driver.Grant
	err   error
}

// asking sends a request in a goroutine.
func (t *trial) asking(d driver.Driver, r driver.Request, place bool) (<-chan answer, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.ctx)
	ask := d.Try
	if place {
		q, ok := driver.As[driver.Queuer](d, driver.OpQueue)
		if !ok {
			t.Fatalf("P10: Caps.Ops lists queue, but the driver is no Queuer")
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

// connected waits until a driver is connected, and returns how long a Try takes it.
func (t *trial) connected(d driver.Driver) time.Duration {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(t.tick()) {
		r := t.elsewhere()
		t.track(d, r)
		begun := time.Now()
		g, err := d.Try(t.ctx, r)
		if took := time.Since(begun); err == nil {
			t.release(d, g)
			return took
		}
		t.withdrawn(d, answer{driver.Grant{Request: r, Handle: g.Handle}, err})
		if time.Now().After(end) {
			t.Fatalf("P7: a client cannot take a free name %v after its connections were cut: %v", patience, err)
		}
	}
}

// withdrawn withdraws a request as package holdfast does: until that succeeds.
func (t *trial) withdrawn(d driver.Driver, a answer) {
	t.Helper()
	g := a.grant
	if a.err != nil {
		g.Token = 0
	}
	for end := time.Now().Add(patience); ; time.Sleep(t.tick()) {
		err := t.release1(d, g)
		if err == nil || driver.Gone(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("P6: a request cannot be withdrawn within %v: %v", patience, err)
		}
	}
}

// seen waits until the store has done what r asks, or for a moment: it may not have
// been asked, or not show it.
func (t *trial) seen(d driver.Driver, r driver.Request, place bool) {
	look, ok := driver.As[driver.Inspector](d, driver.OpInspect)
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !ok {
			continue
		}
		info, err := look.Inspect(t.ctx, r.Name)
		if err == nil && (place && len(info.Waiters) > 0 || !place && len(info.Holders) > 0) {
			return
		}
	}
}

// leavesNothing does what an answer asks of its caller, and then checks by another
// client that the name is free.
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
	// The store has certainly not done it, says the driver.
	for range 3 {
		g, err := t.try1(b, other)
		if err != nil {
			t.Errorf("P6: a request failed with %q, which is not ErrUncertain, and yet the name is closed for it: %v", a.err, err)
			return
		}
		t.release(b, g)
		time.Sleep(5 * time.Millisecond)
	}
}

// lateOnTheWire: a request is given up while it is on its way, withdrawn over
// another connection, and arrives then.
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

// givenUp interrupts requests by nothing but their context, and so needs no
// transport. On a store that answers at once it proves little.
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
