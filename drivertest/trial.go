package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// trial is one run of a case: its name, and the steps of which cases are made. All holds that the case takes are
// released when it ends. The last argument of a step is the text of its failure, which begins with the promise.
type trial struct {
	testing.TB
	*suite
	ctx   context.Context
	name  string
	title string   // of the case: the note of its holds
	heard sync.Map // for each owner, when its last request was sent that the store has answered
	aged  bool     // time has passed until a hold expired, which a busy store may notice late

	kind   kind // of the holds that the case is about; zero: exclusive ones, by Try
	pool   *pool
	opened int // clients of the pool

	asked, had driver.Instant // between these two the store has granted the last hold of have
}

// open returns a new client, closed when the case ends.
func (t *trial) open() driver.Driver {
	t.Helper()
	if t.pool != nil {
		t.opened++
		return t.pool.client(t.opened-1, t.openNew)
	}
	return t.openNew()
}

func (t *trial) openNew() driver.Driver { return closes(t, t.h.Open(t.TB)) }

// closes closes a client when the case ends.
func closes[C io.Closer](t *trial, c C) C {
	t.Cleanup(func() { t.close(c) })
	return c
}

func (t *trial) close(c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
}

// ops returns the optional operations of a driver. What the driver lacks returns ErrUnsupported.
func ops(d driver.Driver) wrap.Forward { return wrap.Forward{Driver: d} }

// request returns a request for an exclusive hold on the case's name, with a TTL that does not pass during the case.
func (t *trial) request() driver.Request {
	return driver.Request{Name: t.name, Owner: newOwner(), TTL: t.long, Note: t.title}
}

func newOwner() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

// brief makes the hold of a request expire during the case.
func (t *trial) brief(r driver.Request) driver.Request {
	r.TTL = t.ttl
	return r
}

// named makes a request one for another name.
func named(r driver.Request, name string) driver.Request {
	r.Name = name
	return r
}

func (t *trial) shared() driver.Request {
	r := t.request()
	r.Mode = driver.Shared
	return r
}

func (t *trial) slot(slots, permits int) driver.Request {
	r := t.request()
	r.Mode, r.Slots, r.Permits = driver.Slot, slots, permits
	return r
}

// stranger returns a grant that is another owner's.
func stranger(g driver.Grant) driver.Grant {
	g.Owner, g.Handle = newOwner(), nil
	return g
}

// try1 asks once and checks the grant, if there is one.
func (t *trial) try1(d driver.Driver, r driver.Request) (driver.Grant, error) {
	t.Helper()
	t.track(d, r)
	g, err := d.Try(t.ctx, r)
	if err == nil {
		t.sane(g, r)
		if g.Claim {
			t.Errorf("P7: a hold that was not handed over to a waiter is marked as a claim")
		}
	}
	return g, err
}

// tryFree is try1 of a name that must be free. If no verdict may depend on the time, the store may notice late that a
// hold has expired.
func (t *trial) tryFree(d driver.Driver, r driver.Request) (g driver.Grant, err error) {
	t.Helper()
	t.within(t.slack, func() bool {
		g, err = t.try1(d, r)
		return !errors.Is(err, driver.ErrHeld) || !t.aged || !t.h.Untimed
	})
	return g, err
}

// take takes a name, which must be free.
func (t *trial) take(d driver.Driver, r driver.Request) driver.Grant {
	t.Helper()
	g, err := t.tryFree(d, r)
	if err != nil {
		t.Fatalf("P7: Try of a free name: %v", err)
	}
	return g
}

// freeNow takes a name, which must be free, and releases it.
func (t *trial) freeNow(d driver.Driver, r driver.Request, why string) {
	t.Helper()
	g, err := t.tryFree(d, r)
	if err != nil {
		t.Errorf("%s: %v", why, err)
		return
	}
	t.release(d, g)
}

// refused asserts that a Try is not granted.
func (t *trial) refused(d driver.Driver, r driver.Request, why string) {
	t.Helper()
	if _, err := t.try1(d, r); err == nil {
		t.Errorf("%s", why)
	} else if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a taken name returned %v, not ErrHeld", err)
	}
}

// track withdraws the request when the case ends, granted or not.
func (t *trial) track(d driver.Driver, r driver.Request) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r.MinHold = 0
		d.Release(ctx, []driver.Grant{{Request: r}})
	})
}

// sane checks what must be true of every grant that has just arrived.
func (t *trial) sane(g driver.Grant, r driver.Request) {
	t.Helper()
	now := t.clock.Now()
	asked, got := r, g.Request
	asked.Tokens, got.Tokens, asked.RW, got.RW = 0, 0, false, false // a driver may ignore them
	switch {
	case got != asked:
		t.Errorf("P1: the grant is of another request: asked %+v, got %+v", r, g.Request)
	case g.Since > now:
		t.Errorf("P1: the grant's Since lies %v in the future", g.Since.Sub(now))
	case g.Valid <= 0 || g.Valid > r.TTL:
		t.Errorf("P1: the grant is valid for %v, asked were %v", g.Valid, r.TTL)
	case g.Claim && g.Valid > 2*t.poll:
		t.Errorf("P7: a claim is valid for %v, longer than two polls of %v", g.Valid, t.poll)
	case t.caps.Fencing && r.Mode != driver.Slot && (g.Token <= 0 || g.Token >= 1<<53):
		t.Errorf("P3: token %d of a driver with fencing tokens is not in 1…2^53-1", g.Token)
	case g.Handle != nil && !reflect.TypeOf(g.Handle).Comparable():
		t.Errorf("P9: the grant's Handle, a %T, is not comparable", g.Handle)
	}
}

// releases releases a batch.
func (t *trial) releases(d driver.Driver, grants ...driver.Grant) []error {
	t.Helper()
	errs := d.Release(t.ctx, grants)
	if len(errs) != len(grants) {
		t.Fatalf("P4: Release of %d grants returned %d errors", len(grants), len(errs))
	}
	return errs
}

func (t *trial) release1(d driver.Driver, g driver.Grant) error {
	t.Helper()
	return t.releases(d, g)[0]
}

// release releases a hold. That must succeed unless the hold has expired, because this machine stood still.
func (t *trial) release(d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := t.release1(d, g); err != nil && (!driver.Gone(err) || t.clock.Now() < g.Since.Add(g.Valid)) {
		t.Fatalf("P4: the holder's release failed: %v", err)
	}
}

// releaseGone releases a hold that the owner does not have.
func (t *trial) releaseGone(d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := t.release1(d, g); err != nil && !driver.Gone(err) {
		t.Errorf("P4: releasing a hold that is gone returned %v; nil or ErrNotHeld is right", err)
	}
}

// withdraw withdraws a request.
func (t *trial) withdraw(d driver.Driver, r driver.Request) {
	t.Helper()
	t.withdrawn(d, driver.Grant{Request: r})
}

// withdrawn withdraws a request as package holdfast does: again and again until the store confirms it.
func (t *trial) withdrawn(d driver.Driver, g driver.Grant) {
	t.Helper()
	g.MinHold = 0
	var err error
	if !t.within(t.patience(), func() bool { err = t.release1(d, g); return err == nil || driver.Gone(err) }) {
		t.Fatalf("P6: a request cannot be withdrawn within %v: %v", t.patience(), err)
	}
}

// renewals renews a batch.
func (t *trial) renewals(d driver.Driver, grants ...driver.Grant) []driver.Renewal {
	t.Helper()
	out := d.Renew(t.ctx, grants)
	if len(out) != len(grants) {
		t.Fatalf("P2: Renew of %d grants returned %d renewals", len(grants), len(out))
	}
	return out
}

func (t *trial) renew1(d driver.Driver, g driver.Grant) driver.Renewal {
	t.Helper()
	return t.renewals(d, g)[0]
}

// renew renews a hold that must be alive.
func (t *trial) renew(d driver.Driver, g driver.Grant) driver.Grant {
	t.Helper()
	before := t.clock.Now()
	r := t.renew1(d, g)
	switch after := t.clock.Now(); {
	case driver.Gone(r.Err) && t.pool != nil && t.now() >= t.until(g):
		t.done() // this machine stood still until the hold had expired
	case r.Err != nil:
		t.Fatalf("P2: renewing a live hold failed: %v", r.Err)
	case r.Since > after:
		t.Errorf("P1: the renewal's Since is %v after its reply", r.Since.Sub(after))
	case r.Valid <= 0 || r.Valid > g.TTL:
		t.Errorf("P1: the renewal is valid for %v, asked were %v", r.Valid, g.TTL)
	case r.Since < g.Since && r.Since.Add(r.Valid) < g.Since.Add(g.Valid):
		t.Errorf("P2: a renewal counts from %v before what it replaces: its lease will not trust it",
			g.Since.Sub(r.Since))
	case r.Since.Add(r.Valid) < before:
		t.Errorf("P2: a successful renewal ended before it was asked for")
	}
	g.Since, g.Valid, g.Claim = r.Since, r.Valid, false
	return g
}

// gone asserts that a renewal returns ErrNotHeld.
func (t *trial) gone(d driver.Driver, g driver.Grant, why string) {
	t.Helper()
	t.notRenewed(d, g, driver.ErrNotHeld, why)
}

// told asserts that a renewal says that the hold was broken.
func (t *trial) told(d driver.Driver, g driver.Grant) {
	t.Helper()
	t.notRenewed(d, g, driver.ErrBroken, "P2: a broken hold was renewed: its loss is silent")
}

func (t *trial) notRenewed(d driver.Driver, g driver.Grant, want error, why string) {
	t.Helper()
	if r := t.renew1(d, g); r.Err == nil {
		t.Errorf("%s", why)
	} else if !errors.Is(r.Err, want) {
		t.Errorf("P2: renewing a hold that is gone returned %v, not %v", r.Err, want)
	}
}

// leaves asserts that a release of a hold that is gone leaves the next hold alone.
func (t *trial) leaves(d driver.Driver, g driver.Grant, other driver.Driver, next driver.Grant) {
	t.Helper()
	t.releaseGone(d, g)
	t.renew(other, next)
	t.refused(d, t.rival(), "P4: the release of a hold that was gone freed the next one")
}

// until returns the end of a grant's validity, by the clock of [trial.now].
func (t *trial) until(g driver.Grant) driver.Instant {
	return g.Since.Add(g.Valid + time.Duration(t.advanced.Load()))
}

// now is the driver's clock, put forward by all that pass has advanced the store.
func (t *trial) now() driver.Instant {
	return t.clock.Now().Add(time.Duration(t.advanced.Load()))
}

// tick is how long to wait before the next poll.
func (t *trial) tick() time.Duration { return min(t.ttl/20, 20*time.Millisecond) }

// within reports whether done returns true, asked again and again for so long.
func (t *trial) within(long time.Duration, done func() bool) bool {
	for end := time.Now().Add(long); !done(); time.Sleep(t.tick()) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// pass lets the store's time pass: by Harness.Advance, or by waiting.
func (t *trial) pass(d time.Duration) {
	t.Helper()
	if t.h.Advance != nil {
		t.h.Advance(t.TB, d)
		t.advanced.Add(int64(d))
		return
	}
	time.Sleep(d)
}

// outlive lets time pass until a hold of this TTL that was taken before has expired in the store, which may be late
// by its Guarantees.Lateness.
func (t *trial) outlive(ttl time.Duration) {
	t.Helper()
	t.pass(ttl + t.caps.Guarantees.Lateness + 10*time.Millisecond)
	t.aged = true
}

// outliveUntil is outlive until an instant at which the store must have opened the name.
func (t *trial) outliveUntil(at driver.Instant) {
	t.Helper()
	t.outlive(max(0, at.Sub(t.now())))
}

// closedUntil asserts that the name is not granted before an instant. The instant at which the grant arrives is
// compared, because this machine may stand still before the request.
func (t *trial) closedUntil(d driver.Driver, until driver.Instant, why string) {
	t.Helper()
	g, err := t.try1(d, t.rival())
	if now := t.now(); err == nil && now < until {
		t.Errorf("%s: granted %v early", why, until.Sub(now))
	}
	if err == nil {
		t.release(d, g)
	}
}
