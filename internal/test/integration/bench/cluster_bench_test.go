//go:build soak

package bench

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// BenchmarkCluster takes and releases locks in a cluster of three masters, by 64 goroutines with a name each,
// beside the raw commands: SET NX PX, and a script that compares and deletes, by rueidis, which pipelines to
// each master. The two alternate, so that other load on the machine hits both alike; of-raw is the median of the
// ratios of raw's time to ours. Run it with -benchtime 20x.
func BenchmarkCluster(b *testing.B) {
	const workers, pairs = 64, 5000
	cluster := testserver.StartCluster(b, testserver.ClusterOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{cluster.Servers[0].Addr}, DisableCache: true, DisableRetry: true})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	release := rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	raw := func(worker int) error {
		const owner = "an owner of 26 characters."
		name := "raw/" + strconv.Itoa(worker)
		if err := client.Do(b.Context(), client.B().Set().Key(name).Value(owner).Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			return err
		}
		return release.Exec(b.Context(), client, []string{name}, []string{owner}).Error()
	}
	ours := pairOf(b, "redis+cluster://"+cluster.Addrs())
	var rawTimes, times, ratios []float64
	for b.Loop() {
		r, o := timed(b, workers, pairs, raw), timed(b, workers, pairs, ours)
		rawTimes, times, ratios = append(rawTimes, r), append(times, o), append(ratios, r/o)
	}
	b.ReportMetric(medianOf(times), "µs/pair")
	b.ReportMetric(medianOf(rawTimes), "raw-µs/pair")
	b.ReportMetric(medianOf(ratios), "of-raw")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

// BenchmarkDeadShard holds 10,000 names in a cluster of three masters, and stops one master for three TTLs. It
// reports after which share of its TTL a lease of the other masters was renewed, at most (a third is due); how
// many of those were lost; and how many of the dead master's, which cannot be kept. A round takes half a
// minute: run it with -benchtime 1x.
func BenchmarkDeadShard(b *testing.B) {
	const leases, ttl = 10_000, 6 * time.Second
	for b.Loop() {
		cluster := testserver.StartCluster(b, testserver.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}})
		u, err := driver.ParseURL("redis+cluster://" + cluster.Addrs())
		if err != nil {
			b.Fatal(err)
		}
		d, err := driver.Open(b.Context(), u)
		if err != nil {
			b.Fatal(err)
		}
		watch := &renewalWatch{Forward: wrap.Forward{Driver: d}, last: map[string]renewed{}}
		c, err := holdfast.New(watch, nil)
		if err != nil {
			b.Fatal(err)
		}
		all, shards := make([]*holdfast.Lease, leases), make([]string, leases)
		for i := range all {
			name := fmt.Sprint("bench/", i)
			if all[i], err = c.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(b.Context()); err != nil {
				b.Fatal(err)
			}
			shards[i] = watch.Shard(driver.Request{Name: name})
		}
		stopped := shards[0]
		for _, s := range cluster.Servers {
			if s.Addr == stopped {
				s.Pause()
				defer s.Resume()
			}
		}
		watch.ignore(stopped)
		time.Sleep(3 * ttl)
		lost, expected := 0, 0
		for i, lease := range all {
			switch {
			case lease.Err() == nil:
			case shards[i] == stopped:
				expected++
			default:
				lost++
			}
		}
		b.ReportMetric(float64(watch.longest())/float64(ttl), "TTLs-between-renewals")
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(float64(expected), "lost-at-the-stopped")
		b.ReportMetric(0, "ns/op")
		if err := d.Close(); err != nil { // without the client: it would wait for the stopped master
			b.Error(err)
		}
	}
}

// renewalWatch is a driver that notes how long it takes from one renewal of a hold to the next.
type renewalWatch struct {
	wrap.Forward
	mu      sync.Mutex
	stopped string // a shard that does not count
	last    map[string]renewed
	worst   time.Duration
}

// renewed is when an owner was renewed last, and where.
type renewed struct {
	at    time.Time
	shard string
}

func (w *renewalWatch) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := w.Forward.Renew(ctx, grants)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i, g := range grants {
		if shard := w.Shard(g.Request); renewals[i].Err == nil && shard != w.stopped {
			if last, known := w.last[g.Owner]; known {
				w.worst = max(w.worst, now.Sub(last.at))
			}
			w.last[g.Owner] = renewed{now, shard}
		}
	}
	return renewals
}

// ignore begins the measurement.
func (w *renewalWatch) ignore(shard string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped, w.worst = shard, 0
	maps.DeleteFunc(w.last, func(_ string, r renewed) bool { return r.shard == shard })
}

// longest returns the longest time between two renewals, one that has not come yet included.
func (w *renewalWatch) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	worst := w.worst
	for _, last := range w.last {
		worst = max(worst, now.Sub(last.at))
	}
	return worst
}
