package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/clustertest"
)

// TestConformanceCluster runs the suite against a cluster of three masters. All of them are restarted at
// a time.
func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, inCluster(t, c, nil), redislock.Push) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxies := clustertest.StartProxies(t, c)
			return dial(t, inCluster(t, c, proxies), redislock.Push), proxies
		},
		Restart:  func(testing.TB) { c.Restart() },
		Parallel: 8,
		Leaks:    serverLeaks,
	})
}

// inCluster connects to a cluster, by way of proxies if there are any.
func inCluster(t testing.TB, c *testserver.Cluster, proxies clustertest.Proxies) redislock.Conn {
	t.Helper()
	u, err := driver.ParseURL("redis+cluster://" + c.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	option, _, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	option.DialCtxFn = func(ctx context.Context, to string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", proxies.Before(to))
	}
	conn, err := join(option)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return conn
}
