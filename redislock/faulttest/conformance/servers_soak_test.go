//go:build soak

package conformance

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestConformanceValkey(t *testing.T) {
	conforms(t, testserver.RedisOptions{AOF: true, Valkey: true})
}

// TestConformanceReplicas: all promises hold where a replica must acknowledge what is granted. The server
// writes nothing to its disk: while it syncs it does not hear of acknowledgements.
func TestConformanceReplicas(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	testserver.StartRedisReplicas(t, server, 1, testserver.RedisOptions{})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dialWith(t, fromURL(t, server.Addr), 1) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return dialWith(t, fromURL(t, proxy.Addr), 1), proxy
		},
		TTL:      2 * time.Second, // replicas have a fifth of it
		Parallel: 8,               // a case gives an acquire 30 ms to learn that a name is held
		Leaks:    serverLeaks,
	})
}
