package rueidisconn

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// BenchmarkPair takes and releases locks that nobody else wants, by one
// goroutine and by 64: raw is what a lock without token, queue and notice costs
// on the same client, the floor.
func BenchmarkPair(b *testing.B) {
	server := testserver.StartRedis(b, testserver.RedisOptions{})
	client := newClient(b, server)
	defer client.Close()
	d, err := redislock.New(b.Context(), Wrap(client), nil)
	if err != nil {
		b.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()

	for _, workers := range []int{1, 64} {
		for _, way := range []struct {
			name string
			pair func(ctx context.Context, name string) error
		}{
			{"raw", rawPair(client)},
			{"driver", driverPair(d)},
			{"mutex", func(ctx context.Context, name string) error {
				lease, err := locks.Mutex(name, nil).TryAcquire(ctx)
				if err != nil {
					return err
				}
				return lease.Release()
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", way.name, workers), func(b *testing.B) {
				b.ReportAllocs()
				run(b, workers, way.pair)
			})
		}
	}
}

// run shares b.N pairs out among workers, a name each.
func run(b *testing.B, workers int, pair func(context.Context, string) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, workers)
	for i := range workers {
		go func() {
			name := "bench/" + strconv.Itoa(i)
			for left.Add(-1) >= 0 {
				if err := pair(b.Context(), name); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// rawPair is SET NX PX and a script that compares and deletes.
func rawPair(client rueidis.Client) func(context.Context, string) error {
	release := rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return func(ctx context.Context, name string) error {
		const owner = "an owner of 26 characters."
		if err := client.Do(ctx, client.B().Set().Key(name).Value(owner).Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			return err
		}
		return release.Exec(ctx, client, []string{name}, []string{owner}).Error()
	}
}

func driverPair(d driver.Driver) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		g, err := d.Try(ctx, driver.Request{Name: name, Owner: "an owner of 26 characters.", TTL: 30 * time.Second})
		if err != nil {
			return err
		}
		return d.Release(ctx, []driver.Grant{g})[0]
	}
}
