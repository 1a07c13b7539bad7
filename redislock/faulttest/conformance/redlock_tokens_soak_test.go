//go:build soak

package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
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
	testserver.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// only returns a driver over durable nodes with these numbers only: the others cannot be reached.
func (s servers) only(t testing.TB, numbers ...int) driver.Driver {
	t.Helper()
	addresses := s.addresses()
	for i := range addresses {
		if !slices.Contains(numbers, i) {
			addresses[i] = "127.0.0.1:1"
		}
	}
	d := redlock(t, addresses, 0, quorum.Options{Durable: true})
	t.Cleanup(func() { d.Close() })
	return d
}

// token takes a name for a moment, and returns the token. A release counts when a majority of the nodes has it, so a
// node that is killed then may have the hold until it ends.
func token(t testing.TB, d driver.Driver) driver.Token {
	t.Helper()
	try := func() (driver.Grant, error) {
		return d.Try(t.Context(), driver.Request{Name: "orders/42", Owner: fmt.Sprint("owner ", rand.Uint64()), TTL: 2 * time.Second})
	}
	g, err := try()
	for ; errors.Is(err, driver.ErrHeld); g, err = try() {
		time.Sleep(100 * time.Millisecond)
	}
	testserver.Must(t, err)
	testserver.Must(t, d.Release(t.Context(), []driver.Grant{g})[0])
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
		Open:        func(t testing.TB) driver.Driver { return redlock(t, nodes.addresses(), 0, o) },
		NoTransport: true, // as without tokens
		// A busy disk may take longer than that to sync what it acknowledges twice.
		Except: []string{"expiry/the shortest TTL"},
	})
}
