//go:build soak

package rueidisconn

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

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
	client rueidis.Client
}

func (c closing) Close() error { c.client.Close(); return nil }

// connect returns one over a client with rueidis' own defaults, which send some commands again.
func connect(t testing.TB, address string) redislock.Conn {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return closing{Wrap(client), client}
}

func TestConn(t *testing.T) { conntest.Run(t, connect) }

// TestWrapCluster: a client of a cluster is refused, because a batch of renewals would fail.
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
