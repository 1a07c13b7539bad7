//go:build soak

package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// BenchmarkDelIfEq takes and releases locks that nobody else wants, in Valkey 9, by one goroutine and by 64
// with a name each: by SET NX PX and DELIFEQ ("delifeq"), by SET NX PX and the script that compares and
// deletes ("script"), and by Holdfast in its own layout ("holdfast") and in hf.layout=setnx ("setnx"). So
// it tells what a release by DELIFEQ would gain. Run it with -benchtime 30x.
func BenchmarkDelIfEq(b *testing.B) {
	server := testserver.StartRedis(b, testserver.RedisOptions{Valkey: true})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	script := rueidis.NewLuaScript("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	delifeq := func(key, value string) rueidis.RedisResult {
		return client.Do(context.Background(), client.B().Arbitrary("DELIFEQ").Keys(key).Args(value).Build())
	}
	compare := func(key, value string) rueidis.RedisResult {
		return script.Exec(context.Background(), client, []string{key}, []string{value})
	}
	names := []string{"delifeq", "script", "holdfast", "setnx"}
	for _, workers := range []int{1, 64} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			ways := map[string]func(worker int) error{
				"delifeq": setAnd(client, delifeq), "script": setAnd(client, compare),
				"holdfast": pairOf(b, "redis://"+server.Addr), "setnx": pairOf(b, "redis://"+server.Addr+"?hf.layout=setnx"),
			}
			times := map[string][]float64{}
			for b.Loop() {
				for _, name := range names {
					times[name] = append(times[name], timed(b, workers, 2000, ways[name]))
				}
			}
			for _, name := range names {
				b.ReportMetric(medianOf(times[name]), name+"-µs")
			}
			b.ReportMetric(0, "ns/op") // of all ways together: says nothing
		})
	}
}

// setAnd takes a key of each worker's own by SET NX PX, and deletes it.
func setAnd(client rueidis.Client, remove func(key, value string) rueidis.RedisResult) func(worker int) error {
	return func(worker int) error {
		key, value := fmt.Sprint("lock/", worker), fmt.Sprint("owner ", worker)
		set := client.B().Set().Key(key).Value(value).Nx().PxMilliseconds(30_000).Build()
		if err := client.Do(context.Background(), set).Error(); err != nil {
			return err
		}
		n, err := remove(key, value).AsInt64()
		if err == nil && n != 1 {
			err = fmt.Errorf("%d keys were deleted", n)
		}
		return err
	}
}
