//go:build soak

package rueidisconn

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestConformanceReplicas: all promises hold where a replica must acknowledge what is granted. The server
// writes nothing to its disk: while it syncs it does not hear of acknowledgements.
func TestConformanceReplicas(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	testserver.StartRedisReplicas(t, server, 1, testserver.RedisOptions{})
	open := func(t testing.TB, address string) driver.Driver {
		t.Helper()
		d, err := redislock.New(t.Context(), fromURL(t, address), &redislock.Options{
			Poll: 400 * time.Millisecond, Replicas: 1,
		})
		if err != nil {
			t.Fatalf("redislock.New: %v", err)
		}
		return d
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return open(t, server.Addr) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return open(t, proxy.Addr), proxy
		},
		TTL:      2 * time.Second, // replicas have a fifth of it
		Parallel: 8,               // a case gives an acquire 30 ms to learn that a name is held
	})
}
