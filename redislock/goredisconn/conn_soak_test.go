//go:build soak

package goredisconn

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/internal/test/conntest"
	"github.com/holdfastlock/holdfast/redislock"
)

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

// TestWrapSentinels: a client of sentinels is refused, because its driver would say the guarantees of one server.
func TestWrapSentinels(t *testing.T) {
	t.Parallel()
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	conntest.Refuses(t, Wrap(client), "redis+sentinel://")
}
