//go:build soak

package rueidisconn

import (
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/conntest"
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
		// The server that was started last ends after the run.
		Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")},
	})
}

// inDatabase2 returns what holdfast.Open uses for database 2.
func inDatabase2(t testing.TB, address string) redislock.Conn {
	t.Helper()
	c, err := Dial(&url.URL{Scheme: "redis", Host: address, Path: "/2"})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return c
}

func TestListening(t *testing.T) { conntest.RunListening(t, inDatabase2) }
