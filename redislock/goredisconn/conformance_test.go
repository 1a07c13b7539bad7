//go:build soak

package goredisconn

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/conntest"
)

func TestConformance(t *testing.T) { conform(t, &redislock.Options{Poll: 400 * time.Millisecond}) }

func TestConformanceSetNX(t *testing.T) {
	conform(t, &redislock.Options{Poll: 100 * time.Millisecond, Layout: redislock.SetNX})
}

// conform runs the conformance suite. The options' poll is short, so that dead waiters are waited for
// quickly.
func conform(t *testing.T, o *redislock.Options) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, server.Addr, o) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return dial(t, proxy.Addr, o), proxy
		},
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to learn that a name is held
		// The server that was started last ends after the run.
		Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")},
	})
}

// closing is a Conn that closes its client too.
type closing struct {
	redislock.Conn
	client *redis.Client
}

func (c closing) Close() error {
	c.Conn.Close()
	return c.client.Close()
}

func (c closing) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	return c.Conn.(redislock.Reserver).Reserve()
}

func connect(address string) redislock.Conn {
	client := redis.NewClient(&redis.Options{Addr: address})
	return closing{Wrap(client), client}
}

func dial(t testing.TB, address string, o *redislock.Options) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), connect(address), o)
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

func TestConn(t *testing.T) {
	conntest.Run(t, func(_ testing.TB, address string) redislock.Conn { return connect(address) })
}

func TestMoved(t *testing.T) {
	conntest.RunMoved(t, func(_ testing.TB, address string) redislock.Conn { return connect(address) })
}

func TestBusy(t *testing.T) {
	conntest.RunBusy(t, func(_ testing.TB, address string) redislock.Conn { return connect(address) })
}

func TestReactions(t *testing.T) {
	conntest.RunReactions(t, func(_ testing.TB, address string) redislock.Conn { return connect(address) })
}

// inDatabase2 returns a Conn whose client has database 2.
func inDatabase2(_ testing.TB, address string) redislock.Conn {
	return &owned{conn{client: redis.NewClient(&redis.Options{Addr: address, DB: 2})}}
}

func TestListening(t *testing.T) { conntest.RunListening(t, inDatabase2) }
