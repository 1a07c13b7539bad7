//go:build soak

package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestConformanceSentinel runs the suite against a primary that sentinels name. They do not take a
// restart for a failure.
func TestConformanceSentinel(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelOptions{
		Replicas: 1, Args: []string{"--appendonly", "yes"},
		SentinelArgs: []string{"sentinel down-after-milliseconds " + testserver.PrimaryName + " 60000"},
	})
	primary := s.Servers[0]
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, bySentinel(t, s, primary.Addr), redislock.Push) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, primary.Addr)
			return dial(t, bySentinel(t, s, proxy.Addr), redislock.Push), proxy
		},
		Restart:  func(testing.TB) { primary.Kill(); primary.Start() },
		Parallel: 8,
		Leaks:    serverLeaks,
	})
}

// bySentinel connects to the primary, which is reached at the address.
func bySentinel(t testing.TB, s *testserver.Sentinels, address string) redislock.Conn {
	t.Helper()
	u, err := driver.ParseURL("redis+sentinel://" + s.Addrs() + "/" + testserver.PrimaryName)
	if err != nil {
		t.Fatal(err)
	}
	option, _, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	option.DialCtxFn = func(ctx context.Context, to string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if to == s.Servers[0].Addr {
			to = address
		}
		return dialer.DialContext(ctx, "tcp", to)
	}
	c, err := follow(option)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return c
}
