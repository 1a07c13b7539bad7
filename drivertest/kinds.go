package drivertest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
)

// kind is one way in which a store comes to have a hold. Most drivers have code of their own for each mode and for
// each path, and a driver may keep a promise for one of them only.
type kind struct {
	name string
	mode driver.Mode
	path path
}

// path is how a hold is granted.
type path int

const (
	tried      path = iota
	enqueued        // a free name, by Enqueue
	handedOver      // to a waiter, which then renews its claim
	downgraded      // an exclusive hold, made shared
)

var (
	// modes are for cases that choose the path themselves.
	modes = []kind{{"exclusive", driver.Exclusive, tried}, {"shared", driver.Shared, tried}, {"slots", driver.Slot, tried}}
	// several are the modes of which a name can have several holds.
	several = modes[1:]
	// kinds are all.
	kinds = slices.Concat(modes, []kind{
		{"exclusive, by Enqueue", driver.Exclusive, enqueued},
		{"shared, by Enqueue", driver.Shared, enqueued},
		{"slots, by Enqueue", driver.Slot, enqueued},
		{"exclusive, handed over", driver.Exclusive, handedOver},
		{"shared, handed over", driver.Shared, handedOver},
		{"slots, handed over", driver.Slot, handedOver},
		{"shared, downgraded", driver.Shared, downgraded},
	})
)

// suffix names the kind after its case.
func (k kind) suffix() string { return " (" + k.name + ")" }

// has reports whether the driver has holds of a kind.
func (s *suite) has(k kind) bool {
	switch {
	case k.mode == driver.Shared && !s.caps.Shared, k.mode == driver.Slot && !s.caps.Slots:
		return false
	case k.path == enqueued || k.path == handedOver:
		return s.can(opQueue)
	}
	return k.path != downgraded || s.can(opDowngrade)
}

// kindsAtOnce bounds how many kinds of one case run at the same time, for stores that count connections.
const kindsAtOnce = 5

// eachKind runs a case with each of its kinds. They share the clients.
func (t *trial) eachKind(c testCase) {
	atOnce := kindsAtOnce
	if c.serial || c.time && t.h.Advance != nil {
		atOnce = 1
	}
	limit, pool := make(chan struct{}, atOnce), &pool{}
	var all sync.WaitGroup
	for _, k := range c.kinds {
		if !t.has(k) || slices.Contains(t.h.Except, strings.TrimPrefix(t.title, titled)+k.suffix()) {
			continue
		}
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			of := &trial{TB: t.TB, suite: t.suite, ctx: t.ctx, name: t.freshName(), title: t.title, kind: k, pool: pool}
			of.perform(c)
		})
	}
	all.Wait()
}

// Errorf names the kind.
func (t *trial) Errorf(format string, args ...any) {
	t.Helper()
	if t.pool != nil {
		format, args = "%s%s", []any{fmt.Sprintf(format, args...), t.kind.suffix()}
	}
	t.TB.Errorf(format, args...)
}

// Fatalf ends the case for its kind, and leaves the other kinds alone.
func (t *trial) Fatalf(format string, args ...any) {
	t.Helper()
	if t.pool == nil {
		t.TB.Fatalf(format, args...)
	}
	t.Errorf(format, args...)
	t.done()
}

// pool has the clients that the kinds of one case share.
type pool struct {
	mu      sync.Mutex
	clients []driver.Driver
}

// client returns the client with this number.
func (p *pool) client(n int, open func() driver.Driver) driver.Driver {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.clients) <= n {
		p.clients = append(p.clients, open())
	}
	return p.clients[n]
}

// done ends the case for its kind, without a failure: there is no more to assert.
func (t *trial) done() { runtime.Goexit() }

// hold returns the request for a hold of the case's kind.
func (t *trial) hold() driver.Request {
	switch {
	case t.kind.mode == driver.Slot:
		return t.slot(3, 2)
	case t.kind.mode == driver.Shared && t.kind.path != downgraded:
		return t.shared()
	}
	return t.request()
}

// elsewhere is hold, on another name.
func (t *trial) elsewhere() driver.Request { return named(t.hold(), t.freshName()) }

// rival returns a request that a hold of the case's kind keeps out.
func (t *trial) rival() driver.Request {
	if t.kind.mode == driver.Slot {
		return t.slot(3, 2)
	}
	return t.request()
}

// beside returns a request for which a hold of a kind in several leaves room.
func (t *trial) beside() driver.Request {
	if t.kind.mode == driver.Slot {
		return t.slot(3, 1)
	}
	return t.shared()
}

// whole returns a request for all that a name has: a hold of any kind keeps it out.
func (t *trial) whole() driver.Request {
	if t.kind.mode == driver.Slot {
		return t.slot(3, 3)
	}
	return t.request()
}

// have takes a hold of the case's kind on a free name. If the store cannot keep the request's lock-delay or minimum
// hold, the driver MUST refuse it, and there is no more to assert.
func (t *trial) have(d driver.Driver, r driver.Request) driver.Grant {
	t.Helper()
	t.asked = t.now()
	g, err := t.granting(d, r)
	switch {
	case errors.Is(err, driver.ErrUnsupported) && (r.LockDelay != 0 || r.MinHold != 0):
		t.freeNow(d, t.rival(), "P6: a request that the store refused left something behind")
		t.done()
	case err != nil:
		t.Fatalf("P7: a free name was not granted: %v", err)
	case t.kind.path == downgraded:
		g = t.downgrade(d, g)
	}
	t.had = t.now()
	return g
}

func (t *trial) granting(d driver.Driver, r driver.Request) (driver.Grant, error) {
	t.Helper()
	switch t.kind.path {
	case enqueued:
		g, err := t.enqueue(d, r)
		return t.confirmed(d, g), err
	case handedOver:
		other := t.open()
		before := t.take(other, t.rival())
		switch _, err := t.enqueue(d, r); {
		case err == nil:
			t.Fatalf("P1: Enqueue was granted a held name")
		case !errors.Is(err, driver.ErrHeld):
			t.release(other, before)
			return driver.Grant{}, err
		}
		w := t.waitFor(d, r)
		if r.MinHold != 0 { // which counts from the grant, not from the place
			t.pass(t.ttl / 2)
		}
		t.asked = t.now()
		t.release(other, before)
		g := t.granted(w, t.poll, "P7: a waiter was not granted the released name")
		return t.confirmed(d, g), nil
	}
	return t.try1(d, r)
}

// confirmed renews a grant that is a claim.
func (t *trial) confirmed(d driver.Driver, g driver.Grant) driver.Grant {
	t.Helper()
	if g.Claim {
		return t.renew(d, g)
	}
	return g
}

// freed asserts that the name of a hold that has ended can be taken at once, with a higher token, and releases it.
func (t *trial) freed(d driver.Driver, last driver.Grant, why string) {
	t.Helper()
	g, err := t.tryFree(d, t.rival())
	if err != nil {
		t.Errorf("%s: %v", why, err)
		return
	}
	t.after(g, last, "the hold before has ended")
	t.release(d, g)
}

// after asserts that a hold's token is higher than that of a hold before it. A guard admits a writer whose token is
// not lower than any reader's, so it may equal the last reader's.
func (t *trial) after(g, last driver.Grant, why string) {
	t.Helper()
	if least := last.Token; t.caps.Fencing && g.Mode != driver.Slot {
		if last.Mode == driver.Shared && g.Mode == driver.Exclusive {
			least--
		}
		t.higher(g, least, why)
	}
}
