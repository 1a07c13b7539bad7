//go:build soak

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// BenchmarkReplicas takes and releases locks that nobody else wants, on a primary with a replica, by one
// goroutine and by 64 with a name each: without hf.replicas ("pair") and with hf.replicas=1 ("replicas").
// Beside them, in the same seconds, is what a replica's acknowledgement costs alone: SET and WAIT in one
// pipeline on a connection of each goroutine's own ("wait"), and SET without ("set"). Of-sum is
// replicas / (pair + wait - set): the price beside that of the pair without and one WAIT. Run it with
// -benchtime 30x.
func BenchmarkReplicas(b *testing.B) {
	primary := testserver.StartRedis(b, testserver.RedisOptions{})
	testserver.StartRedisReplicas(b, primary, 1, testserver.RedisOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{primary.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for _, workers := range []int{1, 64} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			ways := map[string]func(worker int) error{
				"pair": pairOf(b, "redis://"+primary.Addr), "replicas": pairOf(b, "redis://"+primary.Addr+"?hf.replicas=1"),
				"wait": setOf(b, client, workers, true), "set": setOf(b, client, workers, false),
			}
			names := []string{"pair", "replicas", "wait", "set"}
			times := map[string][]float64{}
			for b.Loop() {
				for _, name := range names {
					times[name] = append(times[name], timed(b, workers, 2000, ways[name]))
				}
			}
			for _, name := range names {
				b.ReportMetric(medianOf(times[name]), name+"-µs")
			}
			var ratios []float64
			for i := range times["pair"] {
				ratios = append(ratios, times["replicas"][i]/(times["pair"][i]+times["wait"][i]-times["set"][i]))
			}
			b.ReportMetric(medianOf(ratios), "of-sum")
			b.ReportMetric(0, "ns/op") // of all ways together: says nothing
		})
	}
}

// pairOf takes and releases a name of each worker's own.
func pairOf(b *testing.B, url string) func(worker int) error {
	locks, err := holdfast.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locks.Close() })
	return func(worker int) error {
		lease, err := locks.Mutex("bench/"+strconv.Itoa(worker), nil).Acquire(b.Context())
		if err != nil {
			return err
		}
		return lease.Release()
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
		for _, r := range replies {
			if err := r.Error(); err != nil {
				return err
			}
		}
		if !wait {
			return nil
		}
		if n, err := replies[1].AsInt64(); err != nil || n != 1 {
			return errors.Join(fmt.Errorf("%d replicas", n), err)
		}
		return nil
	}
}

// timed does something n times in all, by so many workers, and returns the microseconds for each.
func timed(b *testing.B, workers, n int, do func(worker int) error) float64 {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	start := time.Now()
	for i := range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(time.Since(start).Nanoseconds()) / 1000 / float64(n)
}

func medianOf(all []float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}
