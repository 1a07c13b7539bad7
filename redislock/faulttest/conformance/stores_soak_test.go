//go:build soak

package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestConformanceValkey(t *testing.T) {
	conforms(t, testserver.RedisOptions{AOF: true, Valkey: true})
}

// TestConformanceReplicas: all promises hold where a replica must acknowledge what is granted. The server
// writes nothing to its disk: while it syncs it does not hear of acknowledgements.
func TestConformanceReplicas(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	testserver.StartRedisReplicas(t, server, 1, testserver.RedisOptions{})
	h := against(server, with(redislock.Options{Poll: 400 * time.Millisecond, Replicas: 1}))
	h.Restart = nil
	h.TTL = 2 * time.Second // replicas have a fifth of it
	drivertest.Run(t, h)
}

func TestConformanceSetNX(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true}) // it forgets nothing when it is restarted
	drivertest.Run(t, against(server, with(redislock.Options{Layout: redislock.SetNX, Forget: true})))
}

func TestConformanceCluster(t *testing.T) {
	drivertest.Run(t, againstCluster(testserver.StartCluster(t, testserver.ClusterOptions{AOF: true}), dial))
}

// againstCluster is against a cluster. All of its servers are restarted at a time.
func againstCluster(c *testserver.Cluster, open func(testing.TB, redislock.Conn) driver.Driver) drivertest.Harness {
	raw := "redis+cluster://" + c.Addrs()
	return drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return open(t, dialBy(t, raw, nil)) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			addresses, by := strings.Split(c.Addrs(), ","), map[string]string{}
			ways, proxies := testserver.StartProxies(t, addresses...)
			for i, address := range addresses {
				by[address] = proxies[i]
			}
			return open(t, dialBy(t, raw, by)), ways
		},
		Restart:  func(testing.TB) { c.Restart() },
		Parallel: 8,
		Leaks:    serverLeaks,
	}
}
