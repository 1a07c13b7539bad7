//go:build soak

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// choiceStarts starts the stores of the guide.
var choiceStarts = map[string]func(testing.TB) string{
	"redis":    func(t testing.TB) string { return testserver.StartRedis(t, testserver.RedisOptions{}).Addr },
	"etcd":     func(t testing.TB) string { return testserver.StartEtcd(t, testserver.EtcdOptions{Sync: true}).Addrs() },
	"postgres": func(t testing.TB) string { return startPostgres(t).Addr },
	"mariadb":  func(t testing.TB) string { return startMariaDB(t).Addr },
	"mysql":    func(t testing.TB) string { return startMySQL(t).Addr },
	"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") },
	"files":    func(t testing.TB) string { return t.TempDir() },
}

// BenchmarkSpeed measures Holdfast on all stores, one after the other in each repetition: pairs of
// one goroutine and of 64, and hand-overs between eight processes. HOLDFAST_BENCH_KEEP=1 keeps the figures in
// docs/speed.csv.
func BenchmarkSpeed(b *testing.B) {
	set, err := settingsOf(os.Getenv, usual)
	if err != nil {
		b.Fatal(err)
	}
	set.peers = []string{"holdfast"}
	loads := map[string]workload{}
	for _, w := range workloads {
		w.reps, w.window = 1, set.window
		loads[w.name] = w
	}
	addrs := map[string]string{}
	for _, s := range choiceStores {
		addrs[s.name] = choiceStarts[s.name](b)
	}
	var all []speed
	for rep := range set.reps {
		for _, c := range choiceStores {
			s, addr := stores[c.name], func() (string, func()) { return addrs[c.name], func() {} }
			pair, err := measure(s, loads["pair"], set, b.TempDir(), addr)
			if err != nil {
				b.Fatal(err)
			}
			many, err := measure(s, loads["pair64"], set, b.TempDir(), addr)
			if err != nil {
				b.Fatal(err)
			}
			hand, err := measure(s, loads["handoff"], set, b.TempDir(), addr)
			if err != nil {
				b.Fatal(err)
			}
			p, m, h := pair[s.ours][0], many[s.ours][0], hand[s.ours][0]
			if h.Overlaps > 0 {
				b.Errorf("%s: %d holds were not alone", c.name, h.Overlaps)
			}
			all = append(all, speed{c.name, rep, p.P50, m.PerSecond, time.Duration(gap(0.5)(h)), max(p.Foreign, m.Foreign, h.Foreign)})
		}
	}
	fmt.Printf("\n%s\n", speedTable(all))
	if os.Getenv("HOLDFAST_BENCH_KEEP") != "" {
		if err := saveSpeeds(speedFile, all); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCrash kills ten holders at once, for some TTLs, and measures how soon others have their
// names, and how many requests a holder sends. HOLDFAST_BENCH_KEEP=1 keeps the points in
// docs/crash.csv, in place of those of the same store and TTL.
func BenchmarkCrash(b *testing.B) {
	const holders = 10
	for _, c := range choiceStores {
		b.Run(c.name, func(b *testing.B) {
			addr := choiceStarts[c.name](b)
			var all []fall
			for _, ttl := range []time.Duration{1, 2, 5, 10, 30} {
				ttl *= time.Second
				if c.name == "etcd" && ttl < 2*time.Second {
					continue // etcd has no shorter leases
				}
				got, err := crash(b.Context(), stores[c.name], addr, ttl, max(ttl, 5*time.Second), holders)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, fallOf(c.name, ttl, got))
			}
			fmt.Printf("\n%s\n", crashTable(all))
			if os.Getenv("HOLDFAST_BENCH_KEEP") != "" {
				if err := saveFalls(crashFile, all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
