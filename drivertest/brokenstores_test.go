package drivertest

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// forgetful is a client of a store that is empty after a restart, although its guarantees
// promise that it keeps its data.
type forgetful struct{ driver.Forward }

func TestRestartThatForgetsIsCaught(t *testing.T) {
	store := memlock.NewStore(nil)
	var mu sync.Mutex
	var clients []*forgetful
	r := &recorder{TB: t, name: t.Name()}
	defer r.cleanUp()
	caps := store.Client().Caps()
	runOn(r, Harness{
		Open: func(testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			c := &forgetful{driver.Forward{Driver: named{store.Client(), caps}}}
			clients = append(clients, c)
			return c
		},
		Restart: func(testing.TB) { // no other case runs meanwhile
			store = memlock.NewStore(nil)
			for _, c := range clients {
				c.Driver = named{store.Client(), caps}
			}
		},
		slack: fastPoll,
	}, "restart")
	for name, promise := range map[string]string{"restart/a hold survives": "P1", "restart/tokens increase": "P3"} {
		if !r.found(name, promise) {
			t.Errorf("case %q did not find %s broken; found were: %s", name, promise,
				strings.Join(r.failures, "\n"))
		}
	}
}

// named has the caps of the first store after the restart too.
type named struct {
	driver.Driver
	caps driver.Caps
}

func (n named) Caps() driver.Caps { return n.caps }

// plain is a good driver without optional operations, readers, slots, tokens and fairness.
type plain struct{ driver.Driver }

func (p plain) Caps() driver.Caps {
	c := p.Driver.Caps()
	c.Ops, c.Shared, c.Slots, c.Fair, c.Fencing = 0, false, false, false, false
	return c
}

func (p plain) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Mode != driver.Exclusive || r.LockDelay != 0 || r.MinHold != 0 {
		return driver.Grant{}, driver.ErrUnsupported
	}
	return p.Driver.Try(ctx, r)
}

// TestPlainDriverPasses: a driver may lack all options if it refuses them.
func TestPlainDriverPasses(t *testing.T) {
	r := judge(t, func(d driver.Driver, _ *shared) driver.Driver { return plain{d} }, func() {}, 4*fastPoll)
	if r.Failed() {
		t.Errorf("a good driver with few capabilities was found broken: %s",
			strings.Join(r.failures, "\n"))
	}
}

// TestBlindStorePasses: a harness may say that the store does not know kinds. Holds must
// exclude requests of another kind all the same.
func TestBlindStorePasses(t *testing.T) {
	store := memlock.NewStore(nil)
	r := &recorder{TB: t, name: t.Name()}
	defer r.cleanUp()
	wrap := breaks(func(b *bad) { b.try, b.enqueue = noMismatch, noMismatch })
	runOn(r, Harness{
		Open:         func(testing.TB) driver.Driver { return wrap(store.Client(), &shared{}) },
		BlindToKinds: true,
	}, "mismatch")
	if r.Failed() {
		t.Errorf("a store that is blind to kinds was found broken: %s", strings.Join(r.failures, "\n"))
	}
}

// TestEveryPromiseHasABrokenDriver: no promise is without a broken driver.
func TestEveryPromiseHasABrokenDriver(t *testing.T) {
	var broken []string
	for _, b := range brokenDrivers {
		broken = append(broken, b.promise)
	}
	// Package holdfast keeps P11, not the driver.
	for _, p := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10"} {
		if !slices.Contains(broken, p) {
			t.Errorf("no driver is broken so that %s is", p)
		}
	}
}

// faltering is a client whose first calls of List fail, as if its connection broke.
type faltering struct {
	driver.Forward
	fails int
}

func (f *faltering) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	if f.fails == 0 {
		return f.Forward.List(ctx, prefix)
	}
	f.fails--
	return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, io.ErrUnexpectedEOF) }
}

// TestSweepDuringFaults: there may still be a fault when histories are over. With
// FaultBetween, and only then, the sweep asks again, for as long as names may be in use by
// right.
func TestSweepDuringFaults(t *testing.T) {
	for name, c := range map[string]struct {
		spoilt, found bool
		fails         int
	}{
		"it is":          {spoilt: true, fails: 2},
		"it is not":      {fails: 1, found: true},
		"it never calms": {spoilt: true, fails: -1, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.NewStore(nil)
				h := Harness{Open: func(testing.TB) driver.Driver {
					return &faltering{Forward: driver.Forward{Driver: store.Client()}, fails: c.fails}
				}}
				if c.spoilt {
					h.FaultBetween = func(_, _ driver.Instant) bool { return true }
				}
				r := &recorder{TB: t, name: t.Name()}
				defer r.cleanUp()
				newSuite(r, h).swept(r)
				if found := r.found("", "P9"); found != c.found {
					t.Errorf("found %q", r.failures)
				}
			})
		})
	}
}
