//go:build soak

package faulttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

// soon is for what takes no time, on a machine that is busy.
const soon = 5 * time.Second

func open(t testing.TB, addr string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), url(addr))
	must(t, err)
	t.Cleanup(func() { c.Close() }) // what is left of a store that was wiped is no error here
	return c
}

// admin returns a plain client of the server.
func admin(t testing.TB, addr string) func(args ...string) rueidis.RedisResult {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	must(t, err)
	t.Cleanup(client.Close)
	return func(args ...string) rueidis.RedisResult {
		return client.Do(context.Background(), client.B().Arbitrary(args...).Build())
	}
}

// until waits until a thing is so.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func acquire(t testing.TB, c *holdfast.Client, name string, o *holdfast.Options) *holdfast.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	lease, err := c.Mutex(name, o).Acquire(ctx)
	for errors.Is(err, holdfast.ErrUncertain) && ctx.Err() == nil { // the first to use a connection that has just ended
		lease, err = c.Mutex(name, o).Acquire(ctx)
	}
	must(t, err)
	return lease
}

// remembers are parameters of a URL by which a server that may have forgotten holds waits for no longer than a test may.
const remembers = "hf.maxttl=2s&hf.ttl=2s"

// TestTwoHolders shows what the driver says that Redis cannot prevent: after
// these faults two holders trust their leases at the same time. A guarded
// resource refuses the old one, because tokens grow all the same, and the old
// one learns of its loss at its next renewal. With the rule of package life only
// a clock that is set forward does that; after the others the second holder
// comes when the first one's lease is over.
func TestTwoHolders(t *testing.T) {
	for name, c := range map[string]struct {
		fault driver.Fault
		spoil func(t *testing.T, r *testserver.Redis)
	}{
		"the clock is set forward": {driver.ClockForward, func(t *testing.T, r *testserver.Redis) { r.Clock.Set(time.Minute) }},
		"FLUSHALL": {driver.StoreWiped, func(t *testing.T, r *testserver.Redis) {
			must(t, admin(t, r.Addr)("FLUSHALL").Error())
		}},
		"killed without persistence":  {driver.StoreRestart, func(t *testing.T, r *testserver.Redis) { r.Kill(); r.Start() }},
		"stopped without persistence": {driver.StoreWiped, func(t *testing.T, r *testserver.Redis) { r.Stop(); r.Start() }},
	} {
		t.Run(name+", it waits", func(t *testing.T) {
			t.Parallel()
			r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
			a, b := openWith(t, r.Addr, remembers), openWith(t, r.Addr, remembers)
			verdict := a.Caps().Guarantees.Faults[c.fault]
			if (verdict.Exclusion == driver.Breaks) != (c.fault == driver.ClockForward) || verdict.Tokens != driver.Keeps {
				t.Errorf("the driver says of %q: exclusion %v, tokens %v", c.fault, verdict.Exclusion, verdict.Tokens)
			}
			before := acquire(t, a, "x", &holdfast.Options{RenewEvery: -1})
			c.spoil(t, r)
			if after := acquire(t, b, "x", nil); verdict.Exclusion == driver.Breaks {
				second(t, before, after)
			} else {
				comesLater(t, before, after)
			}
		})
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
			a, b := openWith(t, r.Addr, "hf.forget=go"), openWith(t, r.Addr, "hf.forget=go")
			verdict := a.Caps().Guarantees.Faults[c.fault]
			if verdict.Exclusion != driver.Breaks || verdict.Tokens != driver.Keeps {
				t.Errorf("the driver says of %q: exclusion %v, tokens %v", c.fault, verdict.Exclusion, verdict.Tokens)
			}
			before := acquire(t, a, "x", nil)
			c.spoil(t, r)
			second(t, before, acquire(t, b, "x", nil))

			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			err := before.Renew(ctx)
			for err != nil && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil { // its connection must be made anew
				err = before.Renew(ctx)
			}
			if !errors.Is(err, holdfast.ErrNotHeld) || !errors.Is(before.Err(), holdfast.ErrLost) {
				t.Errorf("P2: a renewal of a forgotten hold: %v; its lease says %v", err, before.Err())
			}
		})
	}
}

// comesLater asserts that the lease before is over when there is the one after it, whose token is higher.
func comesLater(t *testing.T, before, after *holdfast.Lease) {
	t.Helper()
	if before.Err() == nil {
		t.Error("P1: two holders")
	}
	if after.Token() <= before.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), before.Token())
	}
}

// second asserts that two leases on one name are trusted at the same time, and
// that a guard tells them apart.
func second(t *testing.T, before, after *holdfast.Lease) {
	t.Helper()
	var guard fence.Gate
	must(t, guard.Admit(before.Token(), holdfast.Exclusive))
	stop, first := make(chan struct{}), make(chan faults.Hold)
	go func() { first <- faults.Watch(before, stop, nil) }()
	time.AfterFunc(20*time.Millisecond, func() { close(stop) })
	holds := []faults.Hold{faults.Watch(after, stop, nil), <-first}
	if len(faults.Overlaps(holds)) == 0 {
		t.Errorf("the driver says that this breaks exclusion, and it did not: %v", holds)
	}
	if found := faults.Disorder([]faults.Hold{
		{Name: "x", Token: before.Token(), From: 1, Until: 2},
		{Name: "x", Token: after.Token(), From: 2, Until: 3},
	}); len(found) > 0 {
		t.Error(found)
	}
	if err := guard.Admit(after.Token(), holdfast.Exclusive); err != nil {
		t.Errorf("P3: the guard refused the new holder: %v", err)
	}
	if err := guard.Admit(before.Token(), holdfast.Exclusive); !errors.Is(err, fence.ErrStale) {
		t.Errorf("P3: the guard let the old holder in: %v", err)
	}
}

// TestClockBack: what a clock that is set back by a minute does. Holds of the
// dead end late, tokens grow.
func TestClockBack(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
	a, b := open(t, r.Addr), open(t, r.Addr)
	verdict := a.Caps().Guarantees.Faults[driver.ClockBack]
	if verdict.Exclusion != driver.Delays || verdict.Tokens != driver.Breaks {
		t.Errorf("the driver says of %q: exclusion %v, tokens %v", driver.ClockBack, verdict.Exclusion, verdict.Tokens)
	}
	const ttl = 500 * time.Millisecond
	used := acquire(t, a, "used", nil)
	dead := acquire(t, a, "x", &holdfast.Options{TTL: ttl, RenewEvery: -1})
	must(t, used.Release())
	r.Clock.Set(-time.Minute)
	if again := acquire(t, b, "used", nil); again.Token() <= used.Token() {
		t.Errorf("P3: the clock was set back by a minute, and token %d comes after %d", again.Token(), used.Token())
	}
	<-dead.Done()
	ctx, cancel := context.WithTimeout(t.Context(), 2*a.Caps().PollInterval())
	defer cancel()
	if _, err := b.Mutex("x", nil).Acquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a dead holder's name opened although the clock was set back: %v", err)
	}
	r.Clock.Set(0)
	if next := acquire(t, b, "x", nil); next.Token() <= dead.Token() {
		t.Errorf("P3: the clock was set right, and token %d comes after %d", next.Token(), dead.Token())
	}
}

// TestTokensGoBack shows the one way in which tokens do not grow: a name is
// forgotten when it was idle, and then the clock is set back to before its last
// use.
func TestTokensGoBack(t *testing.T) {
	t.Parallel()
	r := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
	a := open(t, r.Addr)
	use := func() holdfast.Token {
		lease := acquire(t, a, "x", nil)
		must(t, lease.Release())
		return lease.Token()
	}
	last := use()
	for _, idle := range []time.Duration{9 * time.Minute, 0} { // still remembered, so its clock may do what it wants
		r.Clock.Set(idle)
		if next := use(); next <= last {
			t.Errorf("P3: a name was idle for %v, and token %d comes after %d", idle, next, last)
		} else {
			last = next
		}
	}
	r.Clock.Set(40 * time.Minute)
	if _, err := a.Inspect(t.Context(), "x"); err != nil { // by which the server notices that the key has expired
		t.Fatal(err)
	}
	r.Clock.Set(-5 * time.Minute)
	if next := use(); next >= last {
		t.Errorf("the driver says that tokens go back with the clock once a name is forgotten, and %d came after %d", next, last)
	}
}

// TestFailover: a replica that takes over knows nothing of a hold that it was not told of in time, and goes by a clock
// of its own. If it waits, nobody gets the name before the hold is over. TestDemotedPrimary is about the old primary.
func TestFailover(t *testing.T) {
	t.Parallel()
	// over returns a lease on x of the old primary, and one of the replica, which takes over with a clock that is behind.
	over := func(t *testing.T, params string, behind time.Duration, tokens driver.Effect) (before, after *holdfast.Lease) {
		master := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Args: []string{"--repl-diskless-sync-delay", "0"}})
		replica := testserver.StartRedis(t, testserver.RedisOptions{Clock: true, AOF: true})
		replica.Clock.Set(-behind)
		a := openWith(t, master.Addr, params)
		if verdict := a.Caps().Guarantees.Faults[driver.Failover]; verdict.Exclusion != driver.Breaks || verdict.Tokens != tokens {
			t.Errorf("the driver says of %q: exclusion %v, tokens %v", driver.Failover, verdict.Exclusion, verdict.Tokens)
		}
		link, do := chaos.StartProxy(t, master.Addr), admin(t, replica.Addr)
		must(t, do("REPLICAOF", "127.0.0.1", port(link.Addr)).Error())
		until(t, "the replica follows", func() bool {
			info, err := do("INFO", "replication").ToString()
			return err == nil && strings.Contains(info, "master_link_status:up")
		})
		link.Cut()
		before = acquire(t, a, "x", &holdfast.Options{RenewEvery: -1})
		master.Kill()
		t.Cleanup(master.Start) // for clients that are closed after the test
		must(t, do("REPLICAOF", "NO", "ONE").Error())
		return before, acquire(t, openWith(t, replica.Addr, params), "x", nil)
	}
	t.Run("it waits", func(t *testing.T) {
		before, after := over(t, remembers, time.Second, driver.Keeps)
		comesLater(t, before, after)
	})
	t.Run("hf.forget=go", func(t *testing.T) {
		before, after := over(t, "hf.forget=go", time.Minute, driver.Breaks)
		if before.Err() != nil || after.Err() != nil {
			t.Errorf("the driver says that a fail-over breaks exclusion, and it did not: %v, %v", before.Err(), after.Err())
		}
		if after.Token() >= before.Token() {
			t.Errorf("the driver says that a fail-over breaks the order of tokens, and %d came after %d", after.Token(), before.Token())
		}
	})
}
