//go:build soak

package bench

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) {
	child()
	os.Exit(m.Run())
}

// starts start a server of each store, and return its address and what ends it. Servers write to the disk
// before they answer, but for Redis; databases count statements, and admit a connection for each of a
// thousand waiters.
var starts = map[string]func(testing.TB) (addr string, stop func()){
	"redis": func(t testing.TB) (string, func()) {
		s := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--maxclients", "50000"}})
		return s.Addr, s.Kill
	},
	"etcd": func(t testing.TB) (string, func()) {
		s := testserver.StartEtcd(t, testserver.EtcdOptions{Sync: true})
		return s.Addrs(), s.Members[0].Kill
	},
	"postgres": func(t testing.TB) (string, func()) {
		s := testserver.StartPostgres(t, "fsync=on", "max_connections=4000", "shared_preload_libraries=pg_stat_statements")
		db, err := sql.Open("pgx", s.URL("postgres"))
		testserver.Must(t, err)
		defer db.Close()
		if _, err := db.Exec("CREATE EXTENSION pg_stat_statements"); err != nil {
			t.Fatal(err)
		}
		return s.Addr, s.Kill
	},
	"mariadb": func(t testing.TB) (string, func()) {
		s := testserver.StartMariaDB(t, "--innodb-flush-log-at-trx-commit=1", "--max-connections=4000")
		return s.Addr, s.Kill
	},
	"mysql": func(t testing.TB) (string, func()) {
		s := testserver.StartMySQL(t, "--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON", "--max-connections=4000")
		return s.Addr, s.Kill
	},
	"sqlite": func(t testing.TB) (string, func()) { return filepath.Join(t.TempDir(), "locks.db"), func() {} },
	"files":  func(t testing.TB) (string, func()) { return t.TempDir(), func() {} },
	"cell": func(t testing.TB) (string, func()) {
		m := testserver.StartCell(t, testserver.CellOptions{}).Members[0]
		return m.Addr + ";" + filepath.Join(m.Data, "etcd.sock"), m.Kill
	},
}

// Each of these measures each workload on a store, beside its peers, and prints a table for it. The
// repetitions are inside of a measurement, so that in each repetition all peers are measured one by one.

func BenchmarkRedis(b *testing.B)    { benchmark(b, &redisStore) }
func BenchmarkEtcd(b *testing.B)     { benchmark(b, &etcdStore) }
func BenchmarkPostgres(b *testing.B) { benchmark(b, &postgresStore) }
func BenchmarkMariaDB(b *testing.B)  { benchmark(b, &mariaDBStore) }
func BenchmarkMySQL(b *testing.B)    { benchmark(b, &mySQLStore) }
func BenchmarkSQLite(b *testing.B)   { benchmark(b, &sqliteStore) }
func BenchmarkFiles(b *testing.B)    { benchmark(b, &filesStore) }
func BenchmarkCell(b *testing.B)     { benchmark(b, &cellStore) }

func benchmark(b *testing.B, s *store) {
	set := settingsNow(b, 5, 2*time.Second)
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) { run(b, s, w, set) })
	}
}

func settingsNow(b *testing.B, reps int, window time.Duration) settings {
	set, err := settingsOf(os.Getenv, reps, window)
	testserver.Must(b, err)
	loops, _ := strconv.Atoi(os.Getenv("HOLDFAST_BENCH_BUSY"))
	for range loops {
		loop := exec.CommandContext(b.Context(), "sh", "-c", "while :; do :; done")
		testserver.Must(b, loop.Start())
		b.Cleanup(func() { loop.Wait() }) // the context has ended
	}
	return set
}

func run(b *testing.B, s *store, w workload, set settings) {
	got := measure(b, s, w, set, func() (string, func()) { return starts[s.name](b) })
	for _, fault := range got.report(s, w) {
		b.Error(fault)
	}
}

// BenchmarkCrowd measures many clients on one name: the points of docs/crowds.csv.
func BenchmarkCrowd(b *testing.B) {
	set := settingsNow(b, 3, time.Second)
	for name, s := range map[string]*store{"Redis": &redisStore, "Etcd": &etcdStore, "Postgres": &postgresStore,
		"MariaDB": &mariaDBStore, "MySQL": &mySQLStore, "Files": &filesStore, "Cell": &cellStore} {
		for _, n := range []int{4, 16, 64, 256, 1000, 6000} { // Redis needs three files for each client
			if n > 1000 && s != &redisStore {
				continue // it collapses
			}
			b.Run(fmt.Sprintf("%s/clients%d", name, n), func(b *testing.B) { run(b, s, crowdOf(n), set) })
		}
	}
}

// BenchmarkSpeed measures Holdfast on all stores of docs/choose.md, one after the other in each
// repetition, and prints the table that stands there.
func BenchmarkSpeed(b *testing.B) {
	set := settingsNow(b, 5, 2*time.Second)
	reps := set.reps
	set.reps, set.peers = 1, []string{oursName}
	addrs, all := map[string]string{}, map[string][]speed{}
	for range reps {
		for _, s := range stores[:7] {
			if addrs[s.name] == "" {
				addrs[s.name], _ = starts[s.name](b)
			}
			one := map[string]result{}
			for _, w := range workloads {
				if w.name == "pair" || w.name == "pair64" || w.name == "handoff" {
					w.window = set.window
					r := measure(b, s, w, set, func() (string, func()) { return addrs[s.name], func() {} })[oursName][0]
					if r.Overlaps > 0 || r.Failures > 0 {
						b.Errorf("%s: %d holds were not alone, %d failures: %s", s.name, r.Overlaps, r.Failures, r.Failure)
					}
					one[w.name] = r
				}
			}
			all[s.name] = append(all[s.name],
				speed{float64(one["pair"].P50) / 1e3, one["pair64"].PerSecond, gap(0.5)(one["handoff"]) / 1e3})
		}
	}
	fmt.Printf("\n%s\n", speeds(all))
}

// BenchmarkCrash kills ten holders at once, for some TTLs. It prints the store's line of the table in docs/choose.md:
// how soon others have the names, and how many requests a holder sends each second.
func BenchmarkCrash(b *testing.B) {
	const holders = 10
	for _, s := range stores[:7] {
		b.Run(s.name, func(b *testing.B) {
			addr, _ := starts[s.name](b)
			line := "| " + s.title + " |"
			for _, ttl := range []time.Duration{1, 2, 5, 10, 30} {
				ttl *= time.Second
				if s == &etcdStore && ttl < 2*time.Second {
					line += " – |"
					continue // etcd has no shorter leases
				}
				got, err := crash(b, s, addr, ttl, max(ttl, 5*time.Second), holders)
				testserver.Must(b, err)
				line += fmt.Sprintf(" %.2f–%.2f s", slices.Min(got.freed).Seconds(), slices.Max(got.freed).Seconds())
				if got.requests > 0 {
					line += fmt.Sprintf("; %.2f/s", got.requests)
				}
				line += " |"
			}
			fmt.Printf("\n| store | TTL 1s | TTL 2s | TTL 5s | TTL 10s | TTL 30s |\n|---|---|---|---|---|---|\n%s\n", line)
		})
	}
}
