//go:build soak

package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkZooKeeper is all that doc.go names.
func BenchmarkZooKeeper(b *testing.B) {
	b.Run("forced", func(b *testing.B) { pairs(b, true) })
	b.Run("unforced", func(b *testing.B) { pairs(b, false) })
}

// pairs compares pairs of acquire and release. Of one name that many want it also gives Jain's index of the
// clients' shares: 1 is equal.
func pairs(b *testing.B, sync bool) {
	reps, window, peers := settings(b)
	server := testserver.StartZooKeeper(b, testserver.ZooKeeperOptions{Sync: sync, JVM: compiled})
	var java *java
	if peers == nil || slices.Contains(peers, "curator") {
		java = startJava(b)
		for i := range 4 { // compiles Curator, and the server
			java.burst(b, server.Addrs(), workload{16, 16 - 15*(i%2), fmt.Sprint("/warm/", i), time.Second})
		}
	}
	for _, c := range []struct {
		name           string
		clients, names int
	}{{"alone", 1, 1}, {"names-64", 64, 64}, {"crowd-16", 16, 1}, {"crowd-64", 64, 1}} {
		ways := []way{
			{"holdfast", func(w workload) []int { return burst(b, w, ours(b, server.Addrs())) }},
			{"go-zookeeper", func(w workload) []int { return burst(b, w, stock(b, server.Addrs())) }},
			{"curator", func(w workload) []int { return java.burst(b, server.Addrs(), w) }},
		}
		ways = slices.DeleteFunc(ways, func(w way) bool { return peers != nil && !slices.Contains(peers, w.name) })
		b.Run(c.name, func(b *testing.B) {
			w := workload{c.clients, c.names, "/bench/" + c.name, window}
			for range b.N {
				compare(b, w, ways, reps)
			}
		})
	}
}

// compiled has a server compiled as servers are, not as the tests' servers are.
var compiled = []string{"-XX:TieredStopAtLevel=4"}

// settings are those of the environment.
func settings(b *testing.B) (reps int, window time.Duration, peers []string) {
	b.Helper()
	reps, window = 7, time.Second
	var err error
	if text := os.Getenv("HOLDFAST_BENCH_REPS"); text != "" {
		if reps, err = strconv.Atoi(text); err != nil || reps < 1 {
			b.Fatalf("HOLDFAST_BENCH_REPS=%s", text)
		}
	}
	if text := os.Getenv("HOLDFAST_BENCH_WINDOW"); text != "" {
		if window, err = time.ParseDuration(text); err != nil || window <= 0 {
			b.Fatalf("HOLDFAST_BENCH_WINDOW=%s", text)
		}
	}
	if text := os.Getenv("HOLDFAST_BENCH_PEERS"); text != "" {
		peers = strings.Split(text, ";")
	}
	return reps, window, peers
}

// workload is what the clients of a burst do.
type workload struct {
	clients, names int // client i takes name i modulo names
	path           string
	window         time.Duration
}

// way is one of those that are compared.
type way struct {
	name  string
	burst func(workload) []int
}

// compare has the ways take turns, and reports medians: of pairs a second, and of the ratios within a round. Another
// way is the first in each round. The first round, in which programs warm up, does not count.
func compare(b *testing.B, w workload, ways []way, reps int) {
	b.Helper()
	rates, fair := make([][]float64, len(ways)), make([][]float64, len(ways))
	for round := range reps + 1 {
		for i := range ways {
			i = (i + round) % len(ways)
			turn := w
			turn.path = fmt.Sprintf("%s/%s/%d-%d", w.path, ways[i].name, b.N, round)
			shares := ways[i].burst(turn)
			if round == 0 {
				continue
			}
			sum, squares := 0.0, 0.0
			for _, n := range shares {
				sum += float64(n)
				squares += float64(n) * float64(n)
			}
			rates[i] = append(rates[i], sum/w.window.Seconds())
			fair[i] = append(fair[i], sum*sum/squares/float64(len(shares)))
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%d clients, %d names, medians of %d rounds (ranges)\n%14s %24s %24s", w.clients, w.names, reps, "", "pairs/s", "Jain")
	for i := range ways {
		fmt.Fprintf(&table, " %20s", "× "+ways[i].name)
	}
	for i := range ways {
		b.ReportMetric(median(rates[i]), ways[i].name+"-pairs/s")
		fmt.Fprintf(&table, "\n%14s %24s %24s", ways[i].name, spread(rates[i], "%.0f"), spread(fair[i], "%.3f"))
		for j := range ways {
			ratios := make([]float64, reps)
			for round := range reps {
				ratios[round] = rates[i][round] / rates[j][round]
			}
			fmt.Fprintf(&table, " %20s", spread(ratios, "%.2f"))
		}
	}
	b.Log(table.String())
}

func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// spread writes the median, and the range.
func spread(figures []float64, format string) string {
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median(figures), slices.Min(figures), slices.Max(figures))
}
