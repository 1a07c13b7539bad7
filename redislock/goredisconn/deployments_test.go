//go:build soak

package goredisconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/clustertest"
)

// serverLeaks are those of a server that was restarted: it ends after the run.
var serverLeaks = []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")}

// through returns options whose connections to an address go elsewhere.
func through(to func(address string) string) *redis.Options {
	return &redis.Options{Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, to(address))
	}}
}

func open(t testing.TB, conn redislock.Conn) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), conn, &redislock.Options{Poll: 400 * time.Millisecond})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

// TestConformanceCluster runs the suite against a cluster of three Valkey servers; rueidisconn has Redis.
func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true, Valkey: true})
	connect := func(t testing.TB, proxies clustertest.Proxies) driver.Driver {
		t.Helper()
		conn, err := OpenCluster(t.Context(), through(proxies.Before), c.Servers[0].Addr, c.Servers[1].Addr)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, conn)
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return connect(t, nil) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxies := clustertest.StartProxies(t, c)
			return connect(t, proxies), proxies
		},
		Restart:    func(testing.TB) { c.Restart() },
		Operations: 300, // rueidisconn runs more
		Parallel:   24,
		Leaks:      serverLeaks,
	})
}

func throughGoRedis(t testing.TB, c *testserver.Cluster) redislock.Conn {
	t.Helper()
	conn, err := OpenCluster(t.Context(), &redis.Options{}, c.Servers[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSharded: news of grants goes by sharded channels, and is not missed while slots and servers change.
func TestSharded(t *testing.T) { clustertest.Sharded(t, true, throughGoRedis) }

// TestRedissonShards: so does the news of locks that Go and Java share.
func TestRedissonShards(t *testing.T) { clustertest.Redisson(t, true, throughGoRedis) }

// TestSentinelFailover: an operator orders a fail-over while a client holds one lock and waits for another.
// It keeps the one and gets the other at the new primary, and leaves the old one, which still takes
// writes. rueidisconn runs the suite; the two differ in their connections only.
func TestSentinelFailover(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
	var sentinels []string
	for _, r := range s.Sentinels {
		sentinels = append(sentinels, r.Addr)
	}
	connect := func() *holdfast.Client {
		t.Helper()
		c, err := holdfast.New(open(t, OpenSentinel(&redis.Options{}, testserver.PrimaryName, sentinels...)), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := connect(), connect()
	kept, err := a.Mutex("kept", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := a.Mutex("wanted", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := b.Mutex("wanted", nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	await := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	await("b waits", func() bool {
		info, err := a.Inspect(t.Context(), "wanted")
		return err == nil && len(info.Waiters) == 1
	})
	before := s.Servers[0]
	s.Failover()
	now := s.AwaitPrimary(before)
	await("the clients leave the old primary", func() bool {
		return before.Ask("PUBSUB", "CHANNELS", "holdfast:*") == "" && now.Ask("PUBSUB", "CHANNELS", "holdfast:*") != ""
	})
	await("the lease is renewed at the new one", func() bool { return kept.Renew(t.Context()) == nil })
	if err := errors.Join(wanted.Release(), <-got, kept.Release()); err != nil {
		t.Error(err)
	}
}
