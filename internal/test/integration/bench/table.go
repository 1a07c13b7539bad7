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
	p50       = column{"p50", func(r result) float64 { return float64(r.P50) }, span}
	p99       = column{"p99", func(r result) float64 { return float64(r.P99) }, span}
	others    = column{"foreign CPU", func(r result) float64 { return 100 * r.Foreign }, percent}

	fairness = column{"Jain", func(r result) float64 { return r.Fairness }, func(f float64) string { return fmt.Sprintf("%.3f", f) }}
	overlaps = column{"overlaps", func(r result) float64 { return float64(r.Overlaps) }, whole}

	pairColumns = []column{
		{"pairs/s", perSecond, whole}, p50, p99,
		{"client CPU", func(r result) float64 { return float64(r.CPU) }, span},
		{"allocations", func(r result) float64 { return r.Allocs }, whole},
		{"stuck", func(r result) float64 { return float64(r.Stuck) }, whole},
		others,
	}
	hotColumns = []column{
		{"owner changes/s", perSecond, whole},
		{"wait p50", p50.of, span}, {"wait p99", p99.of, span},
		fairness, overlaps,
		others,
	}
	handoffColumns = []column{
		{"owner changes/s", perSecond, whole},
		{"gap p50", gap(0.5), span}, {"gap p99", gap(0.99), span}, {"longest gap", gap(1), span},
		fairness, overlaps,
		others,
	}
	waitColumns = []column{
		{"drain", func(r result) float64 { return float64(r.Drain) }, span},
		{"commands/s, idle", func(r result) float64 { return r.Commands }, whole},
		{"of them scripts", func(r result) float64 { return r.Scripts }, whole},
		{"connections", func(r result) float64 { return float64(r.Connections) }, whole},
		{"bytes/waiter", func(r result) float64 { return r.Bytes }, whole},
		{"server bytes/waiter", func(r result) float64 { return r.ServerBytes }, whole},
		others,
	}
	holdColumns = []column{
		{"bytes/hold", func(r result) float64 { return r.Bytes }, whole},
		{"commands/s", func(r result) float64 { return r.Commands }, whole},
		{"script calls/s", func(r result) float64 { return r.Scripts }, whole},
		{"lost", func(r result) float64 { return float64(r.Lost) }, whole},
		others,
	}
)

// gap is a quantile of the gaps between owners.
func gap(q float64) func(result) float64 {
	return func(r result) float64 { return float64(quantile(r.Gaps, q)) }
}

func whole(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", f) }

func span(f float64) string {
	d := time.Duration(f)
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Nanosecond).String()
	default:
		return d.Round(100 * time.Microsecond).String()
	}
}

// print writes a table in Markdown: medians, and the ratio of the first column to that of the
// peer beside which it is measured.
func (got series) print(w io.Writer, s *store, load workload, beside string) {
	fmt.Fprintf(w, "\n%s: %s\n\n|", s.name, load.about)
	titles := []string{"peer"}
	for _, c := range load.columns {
		titles = append(titles, c.title)
	}
	if beside != "" {
		titles = append(titles, "× "+beside)
	}
	fmt.Fprintf(w, " %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, p := range s.peers {
		results := got[p.name]
		if len(results) == 0 {
			continue
		}
		cells := []string{p.name}
		for _, c := range load.columns {
			cells = append(cells, c.text(median(results, c.of)))
		}
		if beside != "" {
			low, mid, high := spread(ratios(results, got[beside], load.columns[0].of))
			cells = append(cells, fmt.Sprintf("%.2f (%.2f–%.2f)", mid, low, high))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// ratios returns the ratio of each repetition.
func ratios(ours, theirs []result, of func(result) float64) []float64 {
	var all []float64
	for i := range min(len(ours), len(theirs)) {
		if their := of(theirs[i]); their != 0 {
			all = append(all, of(ours[i])/their)
		}
	}
	return all
}

func median(results []result, of func(result) float64) float64 {
	figures := make([]float64, len(results))
	for i, r := range results {
		figures[i] = of(r)
	}
	_, mid, _ := spread(figures)
	return mid
}

// spread returns the least, the median and the greatest.
func spread(figures []float64) (low, mid, high float64) {
	if len(figures) == 0 {
		return 0, 0, 0
	}
	figures = slices.Sorted(slices.Values(figures))
	n := len(figures)
	return figures[0], (figures[(n-1)/2] + figures[n/2]) / 2, figures[n-1]
}

// best returns the peer with the greatest median, without the floors and Holdfast.
func (got series) best(s *store, of func(result) float64) string {
	name, most := "", 0.0
	for _, p := range s.peers {
		if p.name == s.ours || p.name == s.floor || p.name == s.bare {
			continue
		}
		if m := median(got[p.name], of); m > most {
			name, most = p.name, m
		}
	}
	return name
}
