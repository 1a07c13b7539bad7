package fencetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// rueidisEval is fence.Redis.Eval through rueidis.
func rueidisEval(client rueidis.Client) func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	return func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		text := make([]string, len(args))
		for i, arg := range args {
			text[i] = fmt.Sprint(arg)
		}
		return rueidis.NewLuaScript(script).Exec(ctx, client, keys, text).ToAny()
	}
}

// A sale from a stock that is kept in Redis, under a lock in any store. The hash of
// the item holds its marks too.
func Example_redis() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	guard := fence.Redis{Eval: rueidisEval(client)}

	const sell = `
		if tonumber(redis.call('HGET', KEYS[1], 'stock') or 0) < tonumber(ARGV[1]) then return 'sold out' end
		redis.call('HINCRBY', KEYS[1], 'stock', -ARGV[1])
		return 'sold'`
	token := driver.Token(42) // lease.Token()
	answer, err := guard.Do(context.Background(), "item:7", token, driver.Exclusive, sell, []string{"item:7"}, 1)
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("the lock has passed on:", err)
		return
	}
	fmt.Println(answer, err)
}
