// Package conformance runs the suite of package drivertest on drivers of package redislock, and on quorums of
// them, which package quorum tests on real servers here.
package conformance

import (
	"cmp"
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestConformance(t *testing.T) { conforms(t, testserver.RedisOptions{AOF: true}) }

// conforms runs the suite against one server.
func conforms(t *testing.T, o testserver.RedisOptions) {
	t.Helper()
	server := testserver.StartRedis(t, o)
	h := against(server, dial)
	h.Restart = testserver.Long(nil, h.Restart)
	h.Operations, h.Untimed = testserver.Long(300, 2000), !testserver.Soak
	drivertest.Run(t, h)
}

// against returns the harness of a server, over connections to which open makes drivers.
func against(server *testserver.Redis, open func(testing.TB, redislock.Conn) driver.Driver) drivertest.Harness {
	return drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return open(t, fromURL(t, server.Addr)) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return open(t, fromURL(t, proxy.Addr)), proxy
		},
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to learn that a name is held
		Leaks:    serverLeaks,
	}
}

// serverLeaks are those of a server that was restarted: it ends after the run.
var serverLeaks = []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch")}

// fromURL returns what holdfast.Open uses.
func fromURL(t testing.TB, address string) redislock.Conn {
	t.Helper()
	return dialBy(t, "redis://"+address, nil)
}

// dialBy connects to what a URL names, by way of the proxies that there are, by the addresses of their servers.
func dialBy(t testing.TB, raw string, proxies map[string]string) redislock.Conn {
	t.Helper()
	u, err := driver.ParseURL(raw)
	testserver.Must(t, err)
	c, err := redislock.DialBy(context.Background(), u, func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, cmp.Or(proxies[address], address))
	})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return c
}

// dial returns a driver whose poll is short, so that dead waiters are waited for quickly. In the soak the suite restarts
// the servers, which keep all on disk, so that nothing need be waited for; the gate does not, and has the rule of package
// life.
func dial(t testing.TB, c redislock.Conn) driver.Driver {
	t.Helper()
	o := redislock.Options{Poll: 400 * time.Millisecond, Forget: testserver.Soak}
	if !o.Forget {
		o.MaxTTL = longest
	}
	return with(o)(t, c)
}

// longest is more than any TTL of the suite, with its lock-delay.
const longest = time.Hour

// with returns what makes drivers with these options.
func with(o redislock.Options) func(testing.TB, redislock.Conn) driver.Driver {
	return func(t testing.TB, c redislock.Conn) driver.Driver {
		t.Helper()
		d, err := redislock.New(t.Context(), c, &o)
		if err != nil {
			t.Fatalf("redislock.New: %v", err)
		}
		return d
	}
}
