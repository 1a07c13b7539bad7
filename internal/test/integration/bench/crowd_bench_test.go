//go:build soak

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// BenchmarkCrowd measures many clients on one name. HOLDFAST_BENCH_CROWDS sets how many, and
// HOLDFAST_BENCH_CURVE keeps the points in docs/crowds.csv under a name, and draws them.
func BenchmarkCrowd(b *testing.B) {
	for _, c := range []struct {
		name, store string
		start       func(testing.TB) (string, func())
	}{
		{"Redis", "redis", func(t testing.TB) (string, func()) {
			s := testserver.StartRedis(t, testserver.RedisOptions{})
			return s.Addr, s.Kill
		}},
		{"Postgres", "postgres", func(t testing.TB) (string, func()) {
			s := startPostgres(t)
			return s.Addr, s.Kill
		}},
		{"MariaDB", "mariadb", func(t testing.TB) (string, func()) {
			s := startMariaDB(t)
			return s.Addr, s.Kill
		}},
		{"MySQL", "mysql", func(t testing.TB) (string, func()) {
			s := startMySQL(t)
			return s.Addr, s.Kill
		}},
		{"Etcd", "etcd", func(t testing.TB) (string, func()) {
			s := testserver.StartEtcd(t, testserver.EtcdOptions{Sync: true})
			return s.Addrs(), s.Members[0].Kill
		}},
		{"Cell", "cell", func(t testing.TB) (string, func()) {
			m := testserver.StartCell(t, testserver.CellOptions{}).Members[0]
			return m.Addr + ";" + filepath.Join(m.Data, "etcd.sock"), m.Kill
		}},
		{"Files", "files", func(t testing.TB) (string, func()) { return t.TempDir(), func() {} }},
	} {
		b.Run(c.name, func(b *testing.B) { crowds(b, crowdStores[c.store], c.start) })
	}
}

func crowds(b *testing.B, s *store, start func(testing.TB) (string, func())) {
	set, err := settingsOf(os.Getenv, crowdUsual)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("processes", func(b *testing.B) { programs(b, s, start) })
	for _, together := range gatherings(set.crowds) {
		if together[0].name == "pool" && s.floor != oneConnection {
			continue // it has no pools
		}
		b.Run(together[0].name, func(b *testing.B) {
			got := measureCrowd(s, together, set, b.TempDir(), func() (string, func()) { return start(b) })
			for i, g := range together {
				report(b, s, g, got[i])
			}
			if len(together) == 2 {
				printPatience(os.Stdout, s.name, got[0][s.ours], got[1][s.ours])
			}
			if of := os.Getenv("HOLDFAST_BENCH_CURVE"); of != "" && strings.HasPrefix(together[0].name, "clients") {
				keep(b, s, together[0], of, got[0])
			}
		})
	}
}

// programs starts programs that want one name together. Each runs a command once it has it.
func programs(b *testing.B, s *store, start func(testing.TB) (string, func())) {
	set, err := settingsOf(os.Getenv, crowdUsual)
	if err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "holdfast")
	if said, err := exec.Command("go", "build", "-o", program, "github.com/holdfastlock/holdfast/cmd/holdfast").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, said)
	}
	n := min(mostProcesses, slices.Max(set.crowds))
	fmt.Printf("\n%s: %d programs, started together, want one name\n\n", s.name, n)
	for range set.reps {
		addr, stop := start(b)
		e := together(b.Context(), n, []string{"HOLDFAST_STORE=" + s.url(addr)}, program, "run", "-w", patienceOfPrograms, "crowd", "--", "true")
		fmt.Printf("holdfast run: %v\n", e)
		if e.said != "" {
			b.Logf("the first that failed: %s", e.said)
		}
		if _, err := exec.LookPath("flock"); err == nil && s.name == "files" {
			fmt.Printf("flock: %v\n", together(b.Context(), n, nil, "flock", "-w", strings.TrimSuffix(patienceOfPrograms, "s"), filepath.Join(b.TempDir(), "crowd"), "true"))
		}
		stop()
	}
}

// report prints a table, and fails if a lock did not exclude, or ours failed.
func report(b *testing.B, s *store, g gathering, got series) {
	beside := ""
	if !g.once && g.patience == 0 {
		beside = got.best(s, g.columns[0].of)
	}
	got.print(os.Stdout, s, g.workload, beside)
	if alone := got[oneConnection]; len(alone) > 0 {
		low, mid, high := spread(ratios(got[s.ours], alone, perSecond))
		fmt.Printf("\n%s: %.2f (%.2f–%.2f) × %s\n", s.name, mid, low, high, oneConnection)
	}
	for _, p := range s.peers {
		for _, r := range got[p.name] {
			if r.Overlaps > 0 && !p.alone {
				b.Errorf("%s: %d holds were not alone", p.name, r.Overlaps)
			}
			if r.Failure != "" {
				b.Logf("%s: %d failures, the first: %s", p.name, r.Failures, r.Failure)
			}
		}
	}
}

// keep puts the medians of a point into the curve.
func keep(b *testing.B, s *store, g gathering, of string, got series) {
	var fresh []point
	for _, p := range s.peers {
		if rs := got[p.name]; len(rs) > 0 && !p.alone {
			fresh = append(fresh, pointOf(of, s.name, p.name, g.total(p), rs))
		}
	}
	if err := saveCurve(fresh); err != nil {
		b.Fatal(err)
	}
}
