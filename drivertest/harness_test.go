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
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// TestGoodDriverPasses shows that neither the recorder nor the wrapper makes a driver fail.
func TestGoodDriverPasses(t *testing.T) {
	good := func(d driver.Driver, _ *shared) driver.Driver { return wrap.Forward{Driver: d} }
	r := judge(t, good, func() {}, 4*fastPoll)
	if r.Failed() {
		t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
	}
}

// forgetful is a client of a store that is empty after a restart, although its guarantees
// promise that it keeps its data.
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
			c := &forgetful{wrap.Forward{Driver: named{wrap.Forward{Driver: store.Client()}, caps}}}
			clients = append(clients, c)
			return c
		},
		Restart: func(testing.TB) { // no other case runs meanwhile
			store = memlock.NewStore(nil)
			for _, c := range clients {
				c.Driver = named{wrap.Forward{Driver: store.Client()}, caps}
			}
		},
		slack: fastPoll,
	}, "restart")
	for name, promise := range map[string]string{"restart/a hold survives": "P1", "restart/tokens increase": "P3"} {
		if !r.found(name, promise, "") {
			t.Errorf("case %q did not find %s broken; found were: %s", name, promise,
				strings.Join(r.failures, "\n"))
		}
	}
}

// named has the caps of the first store after the restart too.
type named struct {
	wrap.Forward
	caps driver.Caps
}

func (n named) Caps() driver.Caps { return n.caps }

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

// TestReadWriteApart: a layout that keeps mutexes and read-write locks apart passes where
// the harness says so.
func TestReadWriteApart(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: fastPoll})
	wrap := breaks(func(b *bad) {
		b.try, b.enqueue = altered((*bad).goodTry, apart), altered((*bad).goodEnqueue, apart)
		b.renew = func(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
			apart(&g.Request)
			return b.good1(ctx, g)
		}
		b.release = func(b *bad, ctx context.Context, g driver.Grant) error {
			apart(&g.Request)
			return b.goodRelease(ctx, g)
		}
	})
	for _, says := range []bool{true, false} {
		r := &recorder{TB: t, name: t.Name()}
		runOn(r, Harness{
			Open:           func(testing.TB) driver.Driver { return wrap(store.Client(), &shared{}) },
			ReadWriteApart: says,
		}, "read-write")
		r.cleanUp()
		if r.Failed() == says {
			t.Errorf("with ReadWriteApart %t were found: %q", says, r.failures)
		}
	}
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
		Open: func(testing.TB) driver.Driver { return wrap(store.Client(), &shared{}) },
		Transport: func(testing.TB) (driver.Driver, Transport) {
			wire := chaos.New(store.Client(), chaos.Options{})
			d := wrap(wire, &shared{})
			return d, connected{InProcess(wire), d.(*bad)}
		},
		slack: fastPoll,
	}, "transport/connections do not grow with holds")
	if !r.found("transport/connections do not grow with holds", "P9", "") {
		t.Errorf("a connection for each hold was not found; found were: %s",
			strings.Join(r.failures, "\n"))
	}
}

// far is a client of a store in the process. Its answers take a while, and it has no
// transport by which the suite could hold them back.
type far struct{ wrap.Forward }

const farAway = 20 * time.Millisecond

func (f far) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return f.travel(ctx, r, f.Forward.Try)
}

func (f far) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return f.travel(ctx, r, f.Forward.Enqueue)
}

func (f far) travel(ctx context.Context, r driver.Request, ask func(context.Context, driver.Request) (driver.Grant, error)) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	g, err := ask(context.WithoutCancel(ctx), r)
	select {
	case <-time.After(farAway):
		return g, err
	case <-ctx.Done():
		return driver.Grant{Request: r}, driver.Uncertain(ctx.Err())
	}
}

func (f far) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	defer time.Sleep(farAway)
	return f.Forward.Renew(ctx, grants)
}

// TestMutantsFarAway: without a transport the suite finds the same mistakes if calls take
// long enough, and a good driver passes.
func TestMutantsFarAway(t *testing.T) {
	for _, m := range append(mutantsFarAway, mutant{name: "good", spoil: func(*bad) {}, case_: "local"}) {
		t.Run(m.name, func(t *testing.T) {
			store := memlock.NewStore(nil)
			r := &recorder{TB: t, name: t.Name()}
			defer r.cleanUp()
			runOn(r, Harness{
				Open: func(testing.TB) driver.Driver {
					return breaks(m.spoil)(far{wrap.Forward{Driver: store.Client()}}, &shared{})
				},
				NoTransport: true,
			}, m.case_)
			switch {
			case m.promise == "" && r.Failed():
				t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
			case m.promise != "" && !r.found(m.case_, m.promise, ""):
				t.Errorf("case %q did not find %s broken; found were: %s", m.case_, m.promise, strings.Join(r.failures, "\n"))
			}
		})
	}
}

// TestTransportMustBeNamed: a harness has a transport, or says that there is none.
func TestTransportMustBeNamed(t *testing.T) {
	wired := func(testing.TB) (driver.Driver, Transport) { return nil, nil }
	for want, h := range map[string]Harness{
		"Transport is required": {},
		"both":                  {Transport: wired, NoTransport: true},
		"":                      {NoTransport: true},
	} {
		r := &recorder{TB: t, name: t.Name()}
		done := make(chan struct{})
		go func() { // in a goroutine, because Fatal ends it
			defer close(done)
			h.checkTransport(r)
		}()
		<-done
		if got := strings.Join(r.failures, "\n"); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("Transport %t, NoTransport %t: %q, want %q", h.Transport != nil, h.NoTransport,
				got, want)
		}
	}
}

// TestEveryPromiseHasABrokenDriver: no promise is without a broken driver.
func TestEveryPromiseHasABrokenDriver(t *testing.T) {
	var broken []string
	for _, m := range mutants {
		broken = append(broken, m.promise)
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
	wrap.Forward
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
					return &faltering{Forward: wrap.Forward{Driver: store.Client()}, fails: c.fails}
				}}
				if c.spoilt {
					h.FaultBetween = func(_, _ driver.Instant) bool { return true }
				}
				r := &recorder{TB: t, name: t.Name()}
				defer r.cleanUp()
				newSuite(r, h).swept(r)
				if found := r.found("", "P9", ""); found != c.found {
					t.Errorf("found %q", r.failures)
				}
			})
		})
	}
}
