package goredisconn

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/clustertest"
)

// serverLeaks are those of a server that was restarted: it ends after the run.
var serverLeaks = []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")}

// through returns options whose connections to an address go elsewhere.
func through(to func(address string) string) *redis.Options {
	return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, to(address))
	}}
}

func open(t testing.TB, conn redislock.Conn) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), conn, &redislock.Options{Poll: 400 * time.Millisecond})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

// TestConformanceCluster runs the suite against a cluster of three masters.
func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	connect := func(t testing.TB, proxies clustertest.Proxies) driver.Driver {
		t.Helper()
		conn, err := OpenCluster(t.Context(), through(proxies.Before), c.Servers[0].Addr, c.Servers[1].Addr)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, conn)
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return connect(t, nil) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxies := clustertest.StartProxies(t, c)
			return connect(t, proxies), proxies
		},
		Restart:    func(testing.TB) { c.Restart() },
		Operations: 500, // rueidisconn runs more
		Parallel:   16,
		Leaks:      serverLeaks,
	})
}

// TestConformanceSentinel runs the suite against a primary that sentinels name.
func TestConformanceSentinel(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelOptions{
		Replicas: 1, Args: []string{"--appendonly", "yes"},
		SentinelArgs: []string{"sentinel down-after-milliseconds " + testserver.PrimaryName + " 60000"},
	})
	primary := s.Servers[0]
	connect := func(t testing.TB, before string) driver.Driver {
		t.Helper()
		var sentinels []string
		for _, r := range s.Sentinels {
			sentinels = append(sentinels, r.Addr)
		}
		return open(t, OpenSentinel(through(func(address string) string {
			if address == primary.Addr {
				return before
			}
			return address
		}), testserver.PrimaryName, sentinels...))
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return connect(t, primary.Addr) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, primary.Addr)
			return connect(t, proxy.Addr), proxy
		},
		Restart:    func(testing.TB) { primary.Kill(); primary.Start() },
		Operations: 500,
		Parallel:   16,
		Leaks:      serverLeaks,
	})
}
