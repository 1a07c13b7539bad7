//go:build soak

package goredisconn

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/conntest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestConformance(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	open := func(t testing.TB, address string) driver.Driver {
		t.Helper()
		d, err := redislock.New(t.Context(), connect(t, address), &redislock.Options{Poll: 400 * time.Millisecond})
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
		Operations: 300,
		Parallel:   8, // a case gives an acquire 30 ms to learn that a name is held
	})
}

// closing is a Conn that closes its client too.
type closing struct {
	redislock.Conn
	client *redis.Client
}

func (c closing) Close() error { return c.client.Close() }

func connect(_ testing.TB, address string) redislock.Conn {
	client := redis.NewClient(&redis.Options{Addr: address})
	return closing{Wrap(client), client}
}

func TestConn(t *testing.T) { conntest.Run(t, connect) }
