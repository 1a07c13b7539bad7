package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// brokenByTransport are drivers that are right as long as each reply comes at once, and
// drivers that need more goroutines or connections with each hold.
var brokenByTransport = []broken{
	{"since is the arrival of the reply to a try", breaks(func(b *bad) { b.try = sinceArrival((*bad).goodTry) }), "transport/a late reply to a try counts from its request", "P1"},
	{"since is the arrival of the reply to a renewal", breaks(func(b *bad) { b.renew = renewedAtArrival }), "transport/a late reply to a renewal counts from its request", "P1"},
	{"since is the arrival of the queue's reply", breaks(func(b *bad) { b.enqueue = sinceArrival((*bad).goodEnqueue) }), "transport/a late reply of the queue counts from its request", "P1"},
	{"a try without an answer is a plain error", breaks(func(b *bad) { b.try = plainError((*bad).goodTry) }), "transport/a try without an answer is uncertain", "P6"},
	{"a try whose connection breaks is a plain error", breaks(func(b *bad) { b.try = plainError((*bad).goodTry) }), "transport/a try whose connection breaks is uncertain", "P6"},
	{"a place without an answer is a plain error", breaks(func(b *bad) { b.enqueue = plainError((*bad).goodEnqueue) }), "transport/a place without an answer is uncertain", "P6"},
	{"a place whose connection breaks is a plain error", breaks(func(b *bad) { b.enqueue = plainError((*bad).goodEnqueue) }), "transport/a place whose connection breaks is uncertain", "P6"},
	{"a late request takes effect on the wire", breaks(func(b *bad) { b.release = noTombstone }), "transport/a try later than its withdrawal", "P6"},
	{"a goroutine for each hold", breaks(func(b *bad) { b.try, b.release = watchesHold, stopsWatching }), "goroutines/do not grow with holds", "P9"},
	{"a goroutine for each waiter", breaks(func(b *bad) { b.wait = waitsTwice }), "goroutines/do not grow with waiters", "P9"},
}

func (b *bad) goodTry(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Driver.Try(ctx, r)
}

func (b *bad) goodEnqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return b.Forward.Enqueue(ctx, r)
}

type asking = func(*bad, context.Context, driver.Request) (driver.Grant, error)

// sinceArrival reads the clock after the reply.
func sinceArrival(good asking) asking {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := good(b, ctx, r)
		g.Since = driver.HostClock.Now()
		return g, err
	}
}

func renewedAtArrival(b *bad, ctx context.Context, g driver.Grant) driver.Renewal {
	r := b.good1(ctx, g)
	r.Since = driver.HostClock.Now()
	return r
}

// plainError returns a plain error although the outcome is not known.
func plainError(good asking) asking {
	return func(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := good(b, ctx, r)
		if errors.Is(err, driver.ErrUncertain) {
			return driver.Grant{}, fmt.Errorf("the store did not answer")
		}
		return g, err
	}
}

// watchesHold keeps a goroutine for each hold, until stopsWatching.
func watchesHold(b *bad, ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := b.Driver.Try(ctx, r)
	if err == nil {
		end := make(chan struct{})
		b.mu.Lock()
		if b.watched == nil {
			b.watched = map[string]chan struct{}{}
		}
		b.watched[r.Owner] = end
		b.mu.Unlock()
		b.wg.Go(func() {
			select {
			case <-end:
			case <-b.stop:
			}
		})
	}
	return g, err
}

func stopsWatching(b *bad, ctx context.Context, g driver.Grant) error {
	b.mu.Lock()
	if end := b.watched[g.Owner]; end != nil {
		close(end)
		delete(b.watched, g.Owner)
	}
	b.mu.Unlock()
	return b.goodRelease(ctx, g)
}

// waitsTwice waits in a goroutine beside the caller's.
func waitsTwice(b *bad, ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	done := make(chan struct{})
	go func() {
		g, err = b.Forward.Wait(ctx, r)
		close(done)
	}()
	<-done
	return g, err
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
	if !r.found("transport/connections do not grow with holds", "P9") {
		t.Errorf("a connection for each hold was not found; found were: %s",
			strings.Join(r.failures, "\n"))
	}
}

// far is a client of a store in the process. Its answers take a while, and it has no
// transport by which the suite could hold them back.
type far struct{ driver.Forward }

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

// TestBrokenFarDrivers: without a transport the suite finds the same mistakes if calls take
// long enough, and a good driver passes.
func TestBrokenFarDrivers(t *testing.T) {
	for _, b := range []broken{
		{"since is the arrival of the reply to a try", breaks(func(b *bad) { b.try = sinceArrival((*bad).goodTry) }), "local/a try counts from its request", "P1"},
		{"since is the arrival of the reply to a renewal", breaks(func(b *bad) { b.renew = renewedAtArrival }), "local/a renewal counts from its request", "P1"},
		{"since is the arrival of the queue's reply", breaks(func(b *bad) { b.enqueue = sinceArrival((*bad).goodEnqueue) }), "local/an answer of the queue counts from its request", "P1"},
		{"a try that is given up is a plain error", breaks(func(b *bad) { b.try = plainError((*bad).goodTry) }), "faults/a try that is given up leaves nothing", "P6"},
		{"good", breaks(func(*bad) {}), "", ""},
	} {
		t.Run(b.name, func(t *testing.T) {
			store := memlock.NewStore(nil)
			r := &recorder{TB: t, name: t.Name()}
			defer r.cleanUp()
			runOn(r, Harness{
				Open:        func(testing.TB) driver.Driver { return b.wrap(far{driver.Forward{Driver: store.Client()}}, &shared{}) },
				NoTransport: true,
			}, "local", "faults/a try that is given up leaves nothing")
			switch {
			case b.promise == "" && r.Failed():
				t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
			case b.promise != "" && !r.found(b.case_, b.promise):
				t.Errorf("case %q did not find %s broken; found were: %s", b.case_, b.promise,
					strings.Join(r.failures, "\n"))
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
