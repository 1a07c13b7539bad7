package drivertest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// mustPass fails the test if a run has found a driver broken.
func mustPass(t *testing.T, r *recorder) {
	t.Helper()
	if r.Failed() {
		t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
	}
}

// mustFind fails the test if a run has not found a driver broken.
func mustFind(t *testing.T, r *recorder, name, promise, kind string) {
	t.Helper()
	if !r.found(name, promise, kind) {
		t.Errorf("case %q did not find %s broken; found were: %s", name, promise, strings.Join(r.failures, "\n"))
	}
}

// TestGoodDriverPasses shows that neither the recorder nor the wrapper makes a driver fail.
func TestGoodDriverPasses(t *testing.T) {
	good := func(d driver.Driver, _ *shared) driver.Driver { return wrap.Forward{Driver: d} }
	mustPass(t, judge(t, good, 4*fastPoll))
}

// forgetful is a client of a store that is empty after a restart, although its guarantees promise that it keeps its
// data.
type forgetful struct{ wrap.Forward }

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
			c := &forgetful{wrap.Forward{Driver: always{wrap.Forward{Driver: store.Client()}, caps}}}
			clients = append(clients, c)
			return c
		},
		Restart: func(testing.TB) { // no other case runs meanwhile
			store = memlock.NewStore(nil)
			for _, c := range clients {
				c.Driver = always{wrap.Forward{Driver: store.Client()}, caps}
			}
		},
		slack: fastPoll,
	}, "restart")
	mustFind(t, r, "restart/holds and tokens survive", "P1", "")
	mustFind(t, r, "restart/holds and tokens survive", "P3", "")
}

// always has the caps of the first store after the restart too.
type always struct {
	wrap.Forward
	caps driver.Caps
}

func (a always) Caps() driver.Caps { return a.caps }

// plain is a good driver without optional operations, readers, slots, tokens and fairness.
type plain struct{ driver.Driver }

func (p plain) Caps() driver.Caps {
	c := p.Driver.Caps()
	c.Shared, c.Slots, c.Fair, c.Fencing = false, false, false, false
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
	mustPass(t, judge(t, func(d driver.Driver, _ *shared) driver.Driver { return plain{d} }, 4*fastPoll))
}

// connected is a transport that counts a connection for each hold.
type connected struct {
	Transport
	*bad
}

func (c connected) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watched)
}

func TestConnectionPerHoldIsCaught(t *testing.T) {
	store := memlock.NewStore(nil)
	wrap := breaks(func(b *bad) { b.try, b.release = watchesHold, stopsWatching })
	r := &recorder{TB: t, name: t.Name()}
	defer r.cleanUp()
	runOn(r, Harness{
		Open: func(testing.TB) driver.Driver { return wrap(store.Client(), newShared()) },
		Transport: func(testing.TB) (driver.Driver, Transport) {
			wire := chaos.New(store.Client(), chaos.Options{})
			d := wrap(wire, newShared())
			return d, connected{InProcess(wire), d.(*bad)}
		},
		slack: fastPoll,
	}, "transport/connections do not grow with holds")
	mustFind(t, r, "transport/connections do not grow with holds", "P9", "")
}
