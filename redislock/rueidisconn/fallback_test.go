//go:build soak

package rueidisconn

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestFallbackConformance: Redis with a directory behind it is a driver like any other while Redis
// answers.
func TestFallbackConformance(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	dir := t.TempDir()
	over := func(t testing.TB, address string) driver.Driver {
		second, err := filelock.Open(t.Context(), filelock.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		d, err := fallback.New(dial(t, fromURL(t, address), redislock.Push), second, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return over(t, server.Addr) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return over(t, proxy.Addr), proxy
		},
		Restart:    func(testing.TB) { server.Kill(); server.Start() },
		Operations: 600, // the second store has none of them
		Parallel:   8,
		Leaks:      []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")},
	})
}
