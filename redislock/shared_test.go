package redislock

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// shared returns the Redis server that the tests of the gate share, empty.
func shared(t testing.TB) *testserver.Redis {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.Redis {
		return testserver.StartRedis(t, testserver.RedisOptions{})
	}, func(t testing.TB, server *testserver.Redis) {
		c := dialResp(t, server.Addr)
		defer c.Close()
		if reply := c.Do(t.Context(), []Command{{Args: []string{"FLUSHALL"}}})[0]; reply.Err != nil {
			t.Fatal(reply.Err)
		}
		server.Serves("{0}")
	})
}
