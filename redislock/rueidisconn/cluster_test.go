//go:build soak

package rueidisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/clustertest"
)

// TestConformanceCluster runs the suite against a cluster of three masters. All of them are restarted at
// a time.
func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t, testserver.ClusterOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, inCluster(t, c, nil), redislock.Push) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxies := clustertest.StartProxies(t, c)
			return dial(t, inCluster(t, c, proxies), redislock.Push), proxies
		},
		Restart:  func(testing.TB) { c.Restart() },
		Parallel: 8,
		Leaks:    serverLeaks,
	})
}

// inCluster connects to a cluster, by way of proxies if there are any.
func inCluster(t testing.TB, c *testserver.Cluster, proxies clustertest.Proxies) redislock.Conn {
	t.Helper()
	u, err := driver.ParseURL("redis+cluster://" + c.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	option, _, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	option.DialCtxFn = func(ctx context.Context, to string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", proxies.Before(to))
	}
	conn, err := join(option)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return conn
}

// TestSharded: news of grants goes by sharded channels, and is not missed while slots and servers change.
func TestSharded(t *testing.T) {
	clustertest.Sharded(t, false, func(t testing.TB, c *testserver.Cluster) redislock.Conn { return inCluster(t, c, nil) })
}

// TestRedissonShards: so does the news of locks that Go and Java share.
func TestRedissonShards(t *testing.T) {
	clustertest.Redisson(t, false, func(t testing.TB, c *testserver.Cluster) redislock.Conn { return inCluster(t, c, nil) })
}

// TestWrapCluster: a client of a cluster that a program has is refused, because a batch of renewals would
// fail.
func TestWrapCluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.Servers[0].Addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if d, err := redislock.New(t.Context(), Wrap(client), nil); err == nil {
		d.Close()
		t.Error("a driver was made over a client of a cluster")
	} else if !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("%v does not say what to do", err)
	}
}

// TestSubscriptionMoves: a waiter was subscribed at the server that has the name, and is subscribed at
// another when the name is released. Nobody listens at the first any more, but the waiter hears of its
// grant. It must not be taken for dead there, because then the name would be granted twice (P1).
func TestSubscriptionMoves(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{})
	holder, waiter := dial(t, inCluster(t, c, nil), redislock.Push), dial(t, inCluster(t, c, nil), redislock.Push)
	defer holder.Close()
	defer waiter.Close()
	queue, _ := driver.As[driver.Queuer](waiter)
	subscribed := func() (n int) {
		for _, r := range c.Servers {
			n += len(strings.Fields(r.Ask("PUBSUB", "CHANNELS", "holdfast:*")))
		}
		return n
	}
	for i := range 60 {
		req := driver.Request{Name: fmt.Sprint("moves/", i), Owner: fmt.Sprint("holder", i), TTL: time.Minute}
		held, err := holder.Try(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		req.Owner = fmt.Sprint("waiter", i)
		if _, err := queue.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("a second request: %v", err)
		}
		for _, r := range c.Servers {
			_ = r.Ask("CLIENT", "KILL", "TYPE", "pubsub")
		}
		for end := time.Now().Add(time.Minute); subscribed() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the clients do not subscribe again")
			}
		}
		if err := holder.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
			t.Fatal(err)
		}
		g, err := queue.Wait(t.Context(), req)
		if errors.Is(err, driver.ErrHeld) { // it has heard first that messages may have been lost
			g, err = queue.Enqueue(t.Context(), req)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := waiter.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
			t.Errorf("P1: round %d: a grant that the store has taken back was delivered: %v", i, err)
		}
		if err := waiter.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Errorf("round %d: %v", i, err)
		}
	}
}
