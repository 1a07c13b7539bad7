package rueidisconn

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/conntest"
)

func TestConformance(t *testing.T)     { conform(t, redislock.Push) }
func TestConformanceSpin(t *testing.T) { conform(t, redislock.Spin) }

func conform(t *testing.T, wait redislock.Wait) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open:     func(t testing.TB) driver.Driver { return dial(t, server, wait) },
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to hear that a name is held
		// The server that was started last ends after the run.
		Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*Redis).watch")},
	})
}

func newClient(t testing.TB, address string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return client
}

// dial returns a driver whose poll is short, so that dead waiters are waited for
// quickly.
func dial(t testing.TB, server *testserver.Redis, wait redislock.Wait) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), own(newClient(t, server.Addr)), &redislock.Options{Poll: 400 * time.Millisecond, Wait: wait})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

// TestConn uses a client with rueidis' own defaults, which send some commands
// again.
func TestConn(t *testing.T) {
	conntest.Run(t, func(t testing.TB, address string) redislock.Conn {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		return own(client)
	})
}

func TestReactions(t *testing.T) {
	conntest.RunReactions(t, func(t testing.TB, address string) redislock.Conn { return own(newClient(t, address)) })
}
