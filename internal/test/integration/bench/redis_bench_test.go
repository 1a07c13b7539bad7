//go:build soak

package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	syncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// These alternate between ways to do the same thing, so that other load of the machine hits all alike, and
// report medians of figures, and of ratios within a round. Run them with -benchtime 20x.

// way is one of them; a worker calls it.
type way struct {
	name string
	do   func(worker int) error
}

// compare does something n times in each way and round, by so many workers, and returns the microseconds for
// each by name, one for each round.
func compare(b *testing.B, workers, n int, ways []way) map[string][]float64 {
	times := map[string][]float64{}
	for b.Loop() {
		for _, w := range ways {
			var left atomic.Int64
			left.Store(int64(n))
			var all sync.WaitGroup
			start := time.Now()
			for i := range workers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if err := w.do(i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			times[w.name] = append(times[w.name], float64(time.Since(start).Nanoseconds())/1000/float64(n))
		}
	}
	for _, w := range ways {
		b.ReportMetric(median(times[w.name]), w.name+"-µs")
	}
	b.ReportMetric(0, "ns/op") // of all ways together: says nothing
	return times
}

// pairOf takes and releases a name of each worker's own.
func pairOf(b *testing.B, lock locker) func(worker int) error {
	return func(worker int) error {
		h, err := lock(b.Context(), "bench/"+strconv.Itoa(worker))
		if err != nil {
			return err
		}
		return h.release()
	}
}

func pairAt(b *testing.B, url string) func(worker int) error {
	lock, err := openHoldfast(b.Context(), url)
	testserver.Must(b, err)
	return pairOf(b, lock)
}

// BenchmarkCluster takes and releases locks in a cluster of three masters, by 64 goroutines with a name each,
// beside the raw commands.
func BenchmarkCluster(b *testing.B) {
	cluster := testserver.StartCluster(b, testserver.ClusterOptions{})
	raw, err := openRaw(b.Context(), cluster.Servers[0].Addr)
	testserver.Must(b, err)
	times := compare(b, 64, 5000, []way{{"raw", pairOf(b, raw)}, {"holdfast", pairAt(b, "redis+cluster://"+cluster.Addrs())}})
	b.ReportMetric(median(ratios(times["raw"], times["holdfast"])), "of-raw")
}

// BenchmarkReplicas takes and releases locks that nobody else wants, on a primary with a replica, by one
// goroutine and by 64 with a name each: without hf.replicas ("pair") and with hf.replicas=1 ("replicas").
// Beside them is what a replica's acknowledgement costs alone: SET and WAIT in one pipeline on a connection
// of each goroutine's own ("wait"), and SET without ("set"). Of-sum is replicas / (pair + wait - set): the
// price beside that of the pair without and one WAIT.
func BenchmarkReplicas(b *testing.B) {
	primary := testserver.StartRedis(b, testserver.RedisOptions{})
	testserver.StartRedisReplicas(b, primary, 1, testserver.RedisOptions{})
	client, err := newRueidis(primary.Addr)
	testserver.Must(b, err)
	defer client.Close()
	for _, workers := range []int{1, 64} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			times := compare(b, workers, 2000, []way{{"pair", pairAt(b, "redis://"+primary.Addr)},
				{"replicas", pairAt(b, "redis://"+primary.Addr+"?hf.replicas=1")},
				{"wait", setOf(b, client, workers, true)}, {"set", setOf(b, client, workers, false)}})
			sums := times["pair"]
			for i := range sums {
				sums[i] += times["wait"][i] - times["set"][i]
			}
			b.ReportMetric(median(ratios(times["replicas"], sums)), "of-sum")
		})
	}
}

// setOf sets a key of each worker's own, on a connection of its own, and waits for a replica or not.
func setOf(b *testing.B, client rueidis.Client, workers int, wait bool) func(worker int) error {
	conns := make([]rueidis.DedicatedClient, workers)
	for i := range conns {
		var done func()
		conns[i], done = client.Dedicate()
		b.Cleanup(done)
	}
	return func(worker int) error {
		c := conns[worker]
		commands := []rueidis.Completed{c.B().Set().Key(fmt.Sprint("raw/", worker)).Value("value").Build()}
		if wait {
			commands = append(commands, c.B().Arbitrary("WAIT", "1", "1000").Build())
		}
		replies := c.DoMulti(context.Background(), commands...)
		err := replies[0].Error()
		if err == nil && wait {
			if n, waitErr := replies[1].AsInt64(); n != 1 {
				err = errors.Join(fmt.Errorf("%d replicas", n), waitErr)
			}
		}
		return err
	}
}

// BenchmarkRedlock measures locks over five servers beside redsync: pairs of acquire and release by one
// goroutine and by 64 with a name each; and one name that eight clients want: how often it goes from one of
// them to another, and how often it is taken in all.
func BenchmarkRedlock(b *testing.B) {
	var addresses []string
	for range 5 {
		addresses = append(addresses, testserver.StartRedis(b, testserver.RedisOptions{}).Addr)
	}
	clients := map[string][]locker{}
	for range 8 {
		ours, err := openHoldfast(b.Context(), "redlock://"+strings.Join(addresses, ","))
		testserver.Must(b, err)
		var pools []redsyncredis.Pool
		for _, address := range addresses {
			pools = append(pools, syncgoredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
		}
		clients["holdfast"], clients["redsync"] = append(clients["holdfast"], ours), append(clients["redsync"], redsynced(pools...))
	}
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("pair%d", workers), func(b *testing.B) {
			times := compare(b, workers, 500*min(workers, 4), []way{{"holdfast", pairOf(b, clients["holdfast"][0])}, {"redsync", pairOf(b, clients["redsync"][0])}})
			b.ReportMetric(median(ratios(times["redsync"], times["holdfast"])), "×redsync")
		})
	}
	b.Run("contended", func(b *testing.B) {
		changes, holds := map[string][]float64{}, map[string][]float64{}
		for b.Loop() {
			for name, lockers := range clients {
				c, h := contended(b, lockers)
				changes[name], holds[name] = append(changes[name], c), append(holds[name], h)
			}
		}
		for name := range clients {
			b.ReportMetric(median(changes[name]), name+"-owners/s")
			b.ReportMetric(median(holds[name]), name+"-holds/s")
		}
		b.ReportMetric(0, "ns/op") // of both together: says nothing
	})
}

// contended returns how often in a second the name goes from one client to another, and how often it is taken.
func contended(b *testing.B, lockers []locker) (changes, holds float64) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	var a arena
	a.stage.Store(measured)
	var all sync.WaitGroup
	for i, lock := range lockers {
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := lock(ctx, "bench/contended")
				if err != nil {
					continue
				}
				a.enter(int32(i+1), 0)
				a.holds.Add(1)
				if err := h.release(); err != nil && ctx.Err() == nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := a.overlaps.Load(); n > 0 {
		b.Errorf("%d holds were not alone", n)
	}
	return float64(a.changes.Load()), float64(a.holds.Load())
}
