//go:build soak

package conformance

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestConformanceSetNX(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	open := func(t testing.TB, address string) driver.Driver {
		t.Helper()
		d, err := redislock.New(t.Context(), fromURL(t, address), &redislock.Options{
			Poll: 100 * time.Millisecond, Layout: redislock.SetNX,
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
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to learn that a name is held
		Leaks:    serverLeaks,
	})
}
