//go:build soak

package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// durableNodes starts servers that keep on disk what they acknowledge. The last has a clock of its own.
func durableNodes(t testing.TB, n int) servers {
	t.Helper()
	s := make(servers, n)
	for i := range s {
		s[i] = testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Clock: i == n-1})
	}
	return s
}

// durableClient opens a client of package holdfast on durable nodes, by their URL.
func durableClient(t testing.TB, nodes servers) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), "redlock://"+strings.Join(nodes.addresses(), ",")+"?hf.durable=yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRedlockTokens: P3: tokens grow while servers are killed in the midst of requests, a majority of them
// restarts, and the clock of one is a minute ahead or behind. A guard that has seen one refuses a stale holder.
func TestRedlockTokens(t *testing.T) {
	nodes := durableNodes(t, 5)
	clients := []*holdfast.Client{durableClient(t, nodes), durableClient(t, nodes)}
	if !clients[0].Caps().Fencing {
		t.Fatal("durable servers give no tokens")
	}
	var gate fence.Gate
	var mu sync.Mutex // guards what comes next
	highest, granted := holdfast.Token(0), 0
	hold := func(c *holdfast.Client) {
		mu.Lock()
		before := highest
		mu.Unlock()
		lease, err := c.Mutex("orders/42", &holdfast.Options{TTL: 5 * time.Second}).Acquire(t.Context())
		if err != nil { // servers are killed meanwhile
			return
		}
		defer lease.Release()
		mu.Lock()
		defer mu.Unlock()
		if lease.Token() <= before {
			t.Errorf("P3: token %d after %d", lease.Token(), before)
		}
		// A clock that is set forward may let in a second holder, so the guard may have seen a higher token. Then it refuses
		// the lower one, as it refuses that of the hold before.
		least, most := min(lease.Token(), highest), max(lease.Token(), highest)
		if err := gate.Admit(most, holdfast.Exclusive); err != nil {
			t.Errorf("P3: the guard refuses token %d: %v", most, err)
		}
		if err := gate.Admit(least, holdfast.Exclusive); granted > 0 && !errors.Is(err, fence.ErrStale) {
			t.Errorf("P3: the guard has seen token %d and admits the holder of %d: %v", most, least, err)
		}
		highest = most
		granted++
	}
	enough := make(chan struct{})
	var workers sync.WaitGroup
	for _, c := range clients {
		workers.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
					hold(c)
				}
			}
		})
	}
	turns := func(n int) { // until so many more holds have been granted
		t.Helper()
		for end, target := time.Now().Add(hanging), 0; ; time.Sleep(time.Millisecond) {
			mu.Lock()
			now := granted
			mu.Unlock()
			switch {
			case target == 0:
				target = now + n
			case now >= target:
				return
			case time.Now().After(end):
				t.Fatal("no lock is granted")
			}
		}
	}
	turns(10)
	for range testserver.Long(2, 50) {
		for _, ahead := range []time.Duration{time.Minute, -time.Minute, 0} {
			nodes[4].Clock.Set(ahead)
			turns(3)
			away := rand.Perm(5)[:1+rand.IntN(3)]
			for _, n := range away {
				nodes[n].Kill() // in the midst of requests
			}
			if len(away) < 3 {
				turns(3)
			}
			for _, n := range away {
				nodes[n].Start()
			}
			turns(3)
		}
	}
	close(enough)
	workers.Wait()
	t.Logf("%d holds", granted)
}

// token takes a name for a moment, and returns the token.
func token(t testing.TB, d driver.Driver) driver.Token {
	t.Helper()
	g, err := d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: fmt.Sprint("owner ", rand.Uint64()), TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	return g.Token
}

// TestRedlockTokensOfAMajority: P3: whichever majority grants a hold, its token is higher than those before, although
// the clock of one server is a minute ahead. The guarantees say when that can break: if a server loses its data
// although it is said to be durable, or forgets an idle name, and its clock is set back.
func TestRedlockTokensOfAMajority(t *testing.T) {
	ahead := func(t *testing.T, o ...testserver.RedisOptions) servers {
		var s servers
		for _, o := range o {
			s = append(s, testserver.StartRedis(t, o))
		}
		return s
	}
	aof, clock := testserver.RedisOptions{AOF: true}, testserver.RedisOptions{AOF: true, Clock: true}
	guarantees := durableClient(t, ahead(t, aof, aof, aof)).Caps().Guarantees
	verdict := func(t *testing.T, f driver.Fault, kept bool) {
		t.Helper()
		if got := guarantees.Faults[f].Tokens; got != driver.Keeps && got != driver.Breaks || (got == driver.Keeps) != kept {
			t.Errorf("tokens after %s: %v, and the guarantees say %v", f, kept, got)
		}
	}
	t.Run("kept", func(t *testing.T) {
		nodes := ahead(t, aof, aof, clock)
		nodes[2].Clock.Set(time.Minute)
		first := token(t, nodes.only(t, 1, 2))
		nodes[1].Kill()
		nodes[1].Start()
		second := token(t, nodes.only(t, 0, 1))
		nodes[2].Clock.Set(-time.Minute)
		third := token(t, nodes.only(t, 0, 2))
		if second <= first || third <= second {
			t.Errorf("P3: tokens %d, %d, %d", first, second, third)
		}
		verdict(t, driver.StoreRestart, second > first)
		verdict(t, driver.ClockForward, second > first)
	})
	t.Run("data lost", func(t *testing.T) {
		nodes := ahead(t, aof, aof, clock)
		nodes[2].Clock.Set(time.Minute)
		first := token(t, nodes.only(t, 1, 2))
		forgetDisk(nodes[1])
		second := token(t, nodes.only(t, 0, 1))
		verdict(t, driver.StoreWiped, second > first)
	})
	t.Run("clocks set back", func(t *testing.T) {
		nodes := ahead(t, clock, clock, clock)
		set := func(ahead time.Duration) {
			for _, n := range nodes {
				n.Clock.Set(ahead)
			}
		}
		set(time.Hour)
		first := token(t, nodes.only(t, 0, 1, 2))
		set(2 * time.Hour) // the name is forgotten, when somebody looks
		votes(t, nodes, "orders/42")
		set(0)
		second := token(t, nodes.only(t, 0, 1, 2))
		verdict(t, driver.ClockBack, second > first)
	})
}

// TestConformanceRedlockDurable: with durable servers locks have tokens.
func TestConformanceRedlockDurable(t *testing.T) {
	nodes := durableNodes(t, 3)
	o := quorum.Options{NodeTimeout: 2 * time.Second, Durable: true}
	drivertest.Run(t, drivertest.Harness{
		TTL:         time.Second,
		Operations:  400, // of each history
		Open:        func(t testing.TB) driver.Driver { return redlock(t, nodes.addresses(), o) },
		NoTransport: true, // as without tokens
		// A busy disk may take longer than that to sync what it acknowledges twice.
		Except: []string{"expiry/the shortest TTL"},
	})
}
