//go:build soak

package conformance

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/goredisconn"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// closing is a Conn that closes its client too.
type closing struct {
	redislock.Conn
	close func() error
}

func (c closing) Close() error { return c.close() }

// TestConformanceWrapped is the same over clients that a program has already, with their own defaults.
func TestConformanceWrapped(t *testing.T) {
	for name, wrap := range map[string]func(t testing.TB, address string) redislock.Conn{
		"go-redis": func(t testing.TB, address string) redislock.Conn {
			client := redis.NewClient(&redis.Options{Addr: address})
			return closing{goredisconn.Wrap(client), client.Close}
		},
		"rueidis": func(t testing.TB, address string) redislock.Conn {
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
			if err != nil {
				t.Fatalf("connecting: %v", err)
			}
			return closing{rueidisconn.Wrap(client), func() error { client.Close(); return nil }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			drivertest.Run(t, drivertest.Harness{
				Open: func(t testing.TB) driver.Driver { return dial(t, wrap(t, server.Addr)) },
				Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
					proxy := chaos.StartProxy(t, server.Addr)
					return dial(t, wrap(t, proxy.Addr)), proxy
				},
				Operations: 300,
				Parallel:   8,
			})
		})
	}
}
