package fallback_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/memlock"
)

// ttl is that of the tests' locks, and so how long a name is closed after the first store went
// silent.
const ttl = 30 * time.Second

// bubbleClock is the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) + 1 }

// world is two stores in virtual time.
type world struct {
	*testing.T
	ctx           context.Context
	clock         driver.Clock
	first, second *memlock.Store
}

func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := bubbleClock{time.Now()}
		test(&world{
			T: t, ctx: t.Context(), clock: clock,
			first:  memlock.NewStore(&memlock.Options{Clock: clock}),
			second: memlock.NewStore(&memlock.Options{Clock: clock}),
		})
	})
}

// over returns a driver that is closed at the end of the test.
func (w *world) over(first, second driver.Driver, o fallback.Options) *fallback.Driver {
	w.Helper()
	o.Clock = w.clock
	d, err := fallback.New(first, second, &o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = d.Close() })
	return d
}

// holders checks how many hold a name in a store.
func (w *world) holders(s *memlock.Store, name string, want int) {
	w.Helper()
	d := s.Client()
	defer d.Close()
	info, err := d.(driver.Operator).Inspect(w.ctx, name)
	if err != nil || len(info.Holders) != want || want == 0 && !info.Idle() {
		w.Errorf("the store has %+v (%v), not %d holders", info, err, want)
	}
}

// client is one client of both stores.
type client struct {
	*holdfast.Client
	w    *world
	wire *chaos.Driver // between the client and the first store
	d    *fallback.Driver

	mu      sync.Mutex
	changes []bool           // of the breaker: whether it is open
	events  []holdfast.Event // of holds
}

// client makes a client that is closed at the end of the test.
func (w *world) client(o fallback.Options) *client {
	w.Helper()
	return w.clientOver(w.second.Client(), o)
}

// clientOver is client with a driver of the second store.
func (w *world) clientOver(second driver.Driver, o fallback.Options) *client {
	w.Helper()
	c := &client{w: w, wire: chaos.New(w.first.Client(), chaos.Options{})}
	o.OnChange = func(ch fallback.Change) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changes = append(c.changes, ch.Open)
	}
	c.d = w.over(c.wire, second, o)
	note := func(e holdfast.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}
	var err error
	c.Client, err = holdfast.New(c.d, &holdfast.ClientOptions{
		Clock:  w.clock,
		Events: holdfast.Events{Acquired: note, Lost: note, Released: note},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		c.wire.Heal()
		_ = c.Close()
	})
	return c
}

// lock returns a mutex with the tests' TTL.
func (c *client) lock(name string) *holdfast.Lock {
	return c.Mutex(name, &holdfast.Options{TTL: ttl})
}

// acquire takes a lock, or fails the test.
func (c *client) acquire(name string) *holdfast.Lease {
	c.w.Helper()
	lease, err := c.lock(name).Acquire(c.w.ctx)
	if err != nil {
		c.w.Fatal(err)
	}
	return lease
}

// silence cuts the client off, and returns when its breaker is open.
func (c *client) silence() {
	c.w.Helper()
	c.wire.Partition()
	ctx, cancel := context.WithTimeout(c.w.ctx, time.Second)
	defer cancel()
	if lease, err := c.lock("unanswered").Acquire(ctx); err == nil {
		c.w.Fatalf("a lock was taken through a cut connection: %v", lease)
	}
	c.becomes(true, 2*time.Minute)
}

// becomes waits until the breaker is open, or closed.
func (c *client) becomes(open bool, within time.Duration) {
	c.w.Helper()
	for end := time.Now().Add(within); c.d.Status().Open != open; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.w.Fatalf("after %v it is not so that the breaker is open: %t", within, open)
		}
	}
}

func release(t testing.TB, leases ...*holdfast.Lease) {
	t.Helper()
	for _, le := range leases {
		if err := le.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}
