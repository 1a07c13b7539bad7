package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// column is one figure of a table.
type column struct {
	title string
	of    func(result) float64
	text  func(float64) string
}

var (
	perSecond = func(r result) float64 { return r.PerSecond }
	p99       = func(r result) float64 { return float64(r.P99) }
	changes   = column{"owner changes/s", perSecond, whole}
	fairness  = column{"Jain", func(r result) float64 { return r.Fairness }, func(f float64) string { return fmt.Sprintf("%.3f", f) }}
	starved   = column{"starved", func(r result) float64 { return float64(r.Starved) }, whole}
	stuck     = column{"stuck", func(r result) float64 { return float64(r.Stuck) }, whole}
	failures  = column{"failures", func(r result) float64 { return float64(r.Failures) }, whole}
	perChange = column{"commands each", func(r result) float64 { return r.PerChange }, whole}

	pairColumns = []column{
		{"pairs/s", perSecond, whole}, {"p50", func(r result) float64 { return float64(r.P50) }, span}, {"p99", p99, span},
		{"client CPU", func(r result) float64 { return float64(r.CPU) }, span},
		{"allocations", func(r result) float64 { return r.Allocs }, whole}, failures, stuck,
	}
	hotColumns  = []column{changes, {"wait p99", p99, span}, fairness, starved, failures, stuck}
	hot4Columns = append([]column{{"changes between processes/s", func(r result) float64 { return r.Between }, whole},
		{"Jain, processes", func(r result) float64 { return r.ByProcess }, fairness.text}}, hotColumns...)
	crowdColumns = []column{changes, {"wait p99", p99, span}, {"p99 ÷ fair share", overFairShare, known}, fairness, starved,
		perChange, failures, stuck}
	handoffColumns = []column{changes, {"gap p50", gap(0.5), span}, {"gap p99", gap(0.99), span}, {"longest gap", gap(1), span}, fairness, failures, stuck}
	waitColumns    = []column{{"drain", func(r result) float64 { return float64(r.Drain) }, span}, starved,
		{"commands/s, idle", func(r result) float64 { return r.Commands }, whole}, failures, stuck}
)

// gap is a quantile of the gaps between owners.
func gap(q float64) func(result) float64 {
	return func(r result) float64 { return float64(quantile(r.Gaps, q)) }
}

// overFairShare returns how many times as long as in a perfect queue one in a hundred waits: there
// each wait takes as long as everybody's turns. It is not known, and 0, if one in a hundred never
// had the lock: the measurement's end cut those waits short.
func overFairShare(r result) float64 {
	if 100*r.Starved > len(r.Holds) {
		return 0
	}
	return r.P99.Seconds() * r.PerSecond / float64(max(1, len(r.Holds)))
}

// known writes a figure that is positive if it is known.
func known(f float64) string {
	if f == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.2f", f)
}

func whole(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

func span(f float64) string {
	d := time.Duration(f)
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// print writes a table in Markdown: medians, and the ratio of the first column to that of the
// peer beside which it is measured.
func (got series) print(w io.Writer, s *store, load workload, beside string) {
	titles := []string{"peer"}
	for _, c := range load.columns {
		titles = append(titles, c.title)
	}
	if beside != "" {
		titles = append(titles, "× "+beside)
	}
	fmt.Fprintf(w, "\n%s: %s\n\n| %s |\n|%s\n", s.name, load.about, strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, p := range s.all() {
		results := got[p.name]
		if len(results) == 0 {
			continue
		}
		cells := []string{p.name}
		for _, c := range load.columns {
			cells = append(cells, c.text(median(figures(results, c.of))))
		}
		if beside != "" {
			of := load.columns[0].of
			low, mid, high := spread(ratios(figures(results, of), figures(got[beside], of)))
			cells = append(cells, fmt.Sprintf("%.2f (%.2f–%.2f)", mid, low, high))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// ratios returns the ratio of each repetition.
func ratios(ours, theirs []float64) (all []float64) {
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] != 0 {
			all = append(all, ours[i]/theirs[i])
		}
	}
	return all
}

// figures returns a figure of each result.
func figures(results []result, of func(result) float64) (all []float64) {
	for _, r := range results {
		all = append(all, of(r))
	}
	return all
}

func median(figures []float64) float64 { _, mid, _ := spread(figures); return mid }

// spread returns the least, the median and the greatest.
func spread(figures []float64) (low, mid, high float64) {
	if len(figures) == 0 {
		return 0, 0, 0
	}
	figures = slices.Sorted(slices.Values(figures))
	n := len(figures)
	return figures[0], (figures[(n-1)/2] + figures[n/2]) / 2, figures[n-1]
}

// best returns the peer with the greatest median, without the floor and Holdfast.
func (got series) best(s *store, of func(result) float64) string {
	name, most := "", 0.0
	for _, p := range s.peers {
		if p.name == s.floor {
			continue
		}
		if m := median(figures(got[p.name], of)); m > most {
			name, most = p.name, m
		}
	}
	return name
}

// speed is what one repetition has measured of one store: the p50 of a pair in µs, the pairs per second of 64
// goroutines, and the p50 in µs of how long nobody had the name between two owners.
type speed [3]float64

// speeds is the table of docs/choose.md: medians, and beside Redis the medians and ranges of the ratios within the
// repetitions.
func speeds(all map[string][]speed) string {
	var b strings.Builder
	b.WriteString("| store | acquire and release, p50 | 64 goroutines, a name each: pairs/s | × Redis | nobody has the name between two owners, p50 | × Redis |\n|---|---|---|---|---|---|\n")
	for _, s := range stores {
		if all[s.name] == nil {
			continue
		}
		var middles [3]float64
		var times [3]string
		for i := range middles {
			var own, relative []float64
			for rep, r := range all[s.name] {
				own, relative = append(own, r[i]), append(relative, r[i]/all[redisStore.name][rep][i])
			}
			_, middles[i], _ = spread(own)
			low, mid, high := spread(relative)
			if times[i] = fmt.Sprintf("%.2g (%.2g–%.2g)", mid, low, high); s == &redisStore {
				times[i] = "1"
			}
		}
		fmt.Fprintf(&b, "| %s | %.0f µs | %.0f | %s | %.0f µs | %s |\n", s.title, middles[0], middles[1], times[1], middles[2], times[2])
	}
	return b.String()
}
