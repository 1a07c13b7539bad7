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
)

func TestConformance(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	drivertest.Run(t, drivertest.Harness{
		Open:     func(t testing.TB) driver.Driver { return dial(t, server) },
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to hear that a name is held
		// The server that was started last ends after the run.
		Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*Redis).watch")},
	})
}

func newClient(t testing.TB, server *testserver.Redis) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return client
}

// dial returns a driver whose poll is short, so that dead waiters are waited for
// quickly.
func dial(t testing.TB, server *testserver.Redis) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), own(newClient(t, server)), &redislock.Options{Poll: 400 * time.Millisecond})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}
