package bench

import (
	"os"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// BenchmarkRedis measures each workload once: its repetitions are inside, so
// that the peers take turns. It prints a table for each.
func BenchmarkRedis(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			run(b, "redis", w, func() (string, func()) {
				server := testserver.StartRedis(b, testserver.RedisOptions{})
				return server.Addr, server.Kill
			})
		})
	}
}

func run(b *testing.B, name string, w workload, start func() (string, func())) {
	set, err := settingsOf(os.Getenv)
	if err != nil {
		b.Fatal(err)
	}
	s := stores[name]
	got, err := measure(s, w, set, b.TempDir(), start)
	if err != nil {
		b.Fatal(err)
	}
	beside := got.best(s, w.columns[0].of)
	if got[s.floor] != nil {
		beside = s.floor
	}
	if w.name == "wait" || w.name == "hold" {
		beside = ""
	}
	got.print(os.Stdout, s, w, beside)
	for _, p := range s.peers {
		for _, r := range got[p.name] {
			if r.Overlaps > 0 {
				b.Errorf("%s: %d holds were not alone", p.name, r.Overlaps)
			}
			if p.name == s.ours && (r.Stuck > 0 || r.Lost > 0) {
				b.Errorf("%s: %d workers stuck, %d holds lost", p.name, r.Stuck, r.Lost)
			}
		}
	}
}
