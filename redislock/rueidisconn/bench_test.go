package rueidisconn

import (
	"context"
	"runtime"
	"slices"
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

// BenchmarkPair takes and releases locks that nobody else wants, by one goroutine and by 64. Raw is a
// lock without token, queue and notice of loss by rueidis, the floor; endless is the same under a
// context that never ends, where rueidis serves a single caller in its own goroutine. Wrapped is the
// driver over the same client of rueidis, lines is the driver over connections of package wire, as a
// URL opens it, and mutex is package holdfast over that.
//
// The ways alternate several times a second, so that other load on the machine hits all of them
// alike; the share of the floor's speed is the median over the rounds. Run it with -benchtime 50x.
func BenchmarkPair(b *testing.B) {
	server := testserver.StartRedis(b, testserver.RedisOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	wrapped, err := redislock.New(b.Context(), Wrap(client), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer wrapped.Close()
	d, err := redislock.New(b.Context(), withLines(b, server.Addr), nil)
	if err != nil {
		b.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()
	mutexPair := func(ctx context.Context, name string) error {
		lease, err := locks.Mutex(name, nil).TryAcquire(ctx)
		if err != nil {
			return err
		}
		return lease.Release()
	}
	for _, workers := range []int{1, 64} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			raw := rawPair(client)
			ways := []*way{
				{name: "raw", pair: raw},
				{name: "endless", pair: func(ctx context.Context, name string) error { return raw(context.WithoutCancel(ctx), name) }},
				{name: "wrapped", pair: driverPair(wrapped)},
				{name: "lines", pair: driverPair(d)},
				{name: "mutex", pair: mutexPair},
			}
			for b.Loop() {
				for _, w := range ways {
					w.round(b, workers)
				}
			}
			for _, w := range ways {
				b.ReportMetric(w.median(func(i int) float64 { return w.times[i] }), w.name+"-µs/pair")
				b.ReportMetric(float64(w.allocs)/float64(len(w.times)*round), w.name+"-allocs/pair")
				if w != ways[0] {
					b.ReportMetric(w.median(func(i int) float64 { return ways[0].times[i] / w.times[i] }), w.name+"-of-floor")
				}
			}
			b.ReportMetric(0, "ns/op") // of all ways together: says nothing
		})
	}
}

// round is how many pairs are taken at a time.
const round = 2000

// way is one way to lock.
type way struct {
	name   string
	pair   func(ctx context.Context, name string) error
	times  []float64 // µs per pair, of each round
	allocs uint64
}

func (w *way) round(b *testing.B, workers int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	run(b, workers, round, w.pair)
	w.times = append(w.times, float64(time.Since(start).Nanoseconds())/1000/round)
	runtime.ReadMemStats(&after)
	w.allocs += after.Mallocs - before.Mallocs
}

// median returns the median of f over the rounds.
func (w *way) median(f func(round int) float64) float64 {
	all := make([]float64, len(w.times))
	for i := range all {
		all[i] = f(i)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// run shares n pairs out among workers, a name each.
func run(b *testing.B, workers, n int, pair func(context.Context, string) error) {
	var left atomic.Int64
	left.Store(int64(n))
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
