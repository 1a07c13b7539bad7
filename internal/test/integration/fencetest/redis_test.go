//go:build soak

package fencetest

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedis runs the cases through two client libraries.
func TestRedis(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	t.Run("rueidis", func(t *testing.T) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		RunRedis(t, fence.Redis{Eval: rueidisEval(client)})
	})
	t.Run("go-redis", func(t *testing.T) {
		client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
		defer client.Close()
		RunRedis(t, fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
			return goredis.NewScript(script).Run(ctx, client, keys, args...).Result()
		}})
	})
}
