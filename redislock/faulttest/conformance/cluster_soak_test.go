//go:build soak

package conformance

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestConformanceCluster runs the suite against a cluster of three masters. All of them are restarted at
// a time.
func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, inCluster(t, c, nil)) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			ways := startProxies(t, c.Servers...)
			return dial(t, inCluster(t, c, ways)), ways
		},
		Restart:  func(testing.TB) { c.Restart() },
		Parallel: 8,
		Leaks:    serverLeaks,
	})
}

// inCluster connects to a cluster, by way of proxies if there are any.
func inCluster(t testing.TB, c *testserver.Cluster, ways proxies) redislock.Conn {
	t.Helper()
	return dialBy(t, "redis+cluster://"+c.Addrs(), ways)
}
