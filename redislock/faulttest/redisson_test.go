//go:build soak

package faulttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// redissonLock is one way to hold a name in the layout redisson.
type redissonLock struct {
	kind string
	of   func(*holdfast.Client) *holdfast.Lock
}

var redissonLocks = map[string]redissonLock{
	"lock":   {"lock", func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("lock", nil) }},
	"write":  {"lock", func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("write", nil).Write }},
	"permit": {"lock", func(c *holdfast.Client) *holdfast.Lock { return c.Semaphore("permit", 1, nil) }},
	"fair":   {"fair", func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("fair", nil) }},
	"fenced": {"fenced", func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("fenced", nil) }},
}

// redissonClients returns a client of each kind.
func redissonClients(t *testing.T, r *testserver.Redis) map[string]*holdfast.Client {
	t.Helper()
	clients := map[string]*holdfast.Client{}
	for _, kind := range []string{"lock", "fair", "fenced"} {
		c, err := holdfast.Open(t.Context(), url(r.Addr)+"?hf.layout=redisson&hf.redisson="+kind)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		clients[kind] = c
	}
	return clients
}

// TestRedissonTwoHolders shows what the guarantees of the layout redisson say that Redis cannot prevent, for each kind
// of lock: two trust their leases at the same time. The first one learns of it at its next renewal.
func TestRedissonTwoHolders(t *testing.T) {
	for name, c := range map[string]struct {
		fault driver.Fault
		spoil func(t *testing.T, r *testserver.Redis)
		again bool // tokens begin at 1 again
	}{
		"the clock is set forward":   {driver.ClockForward, func(_ *testing.T, r *testserver.Redis) { r.Clock.Set(time.Minute) }, false},
		"FLUSHALL":                   {driver.StoreWiped, func(t *testing.T, r *testserver.Redis) { admin(t, r.Addr)("FLUSHALL") }, true},
		"killed without persistence": {driver.StoreRestart, func(_ *testing.T, r *testserver.Redis) { r.Kill(); r.Start() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
			first, second := redissonClients(t, r), redissonClients(t, r)
			before := map[string]*holdfast.Lease{}
			for what, l := range redissonLocks {
				before[what] = take(t, l.of(first[l.kind]))
			}
			c.spoil(t, r)
			for what, l := range redissonLocks {
				if said := first[l.kind].Caps().Guarantees.Faults[c.fault]; said.Exclusion != driver.Breaks {
					t.Errorf("%s: it is said that exclusion is %v", what, said.Exclusion)
				}
				after := take(t, l.of(second[l.kind]))
				if before[what].Err() != nil || after.Err() != nil {
					t.Errorf("%s: it is said that two hold it, and they have %v and %v", what, before[what].Err(), after.Err())
				}
				if what == "fenced" && (after.Token() == 1) != c.again {
					t.Errorf("P3: the token is %v after %v", after.Token(), before[what].Token())
				}
				learns(t, what, before[what])
			}
		})
	}
}

// take waits for a lock that must be free, also while the connection is made anew.
func take(t *testing.T, l *holdfast.Lock) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		lease, err := l.Acquire(ctx)
		if err == nil {
			return lease
		}
		if errors.Is(err, holdfast.ErrHeld) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// learns checks that a holder learns by a renewal that its hold is gone.
func learns(t *testing.T, what string, lease *holdfast.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := lease.Renew(ctx)
	for err != nil && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil { // its connection must be made anew
		err = lease.Renew(ctx)
	}
	if !errors.Is(err, holdfast.ErrNotHeld) || !errors.Is(lease.Err(), holdfast.ErrLost) {
		t.Errorf("P2: %s: a renewal of a forgotten hold: %v; its lease says %v", what, err, lease.Err())
	}
}
