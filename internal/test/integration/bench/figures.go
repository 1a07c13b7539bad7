package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table is a file of figures of the documentation: the first columns say of which case they are.
type table struct {
	file   string
	keys   int // columns
	titles []string
}

// figures are one line of a table.
type figures struct {
	key []string
	n   []float64
}

var (
	// crowdTable has medians: owner changes per second, the 99th percentile of waits ÷ fair share, …
	crowdTable = table{"../../../../docs/crowds.csv", 3, []string{"store", "peer", "clients", "repetitions", "changes_per_second", "p99_over_fair_share",
		"jain", "starved", "commands_each", "foreign_cpu"}}
	// speedTable has what one repetition has measured of one store; repetitions of the same number were measured together.
	speedTable = table{"../../../../docs/speed.csv", 2, []string{"store", "repetition", "pair_p50_us", "pairs_per_second_of_64", "gap_p50_us", "foreign_cpu"}}
	// crashTable has what a holder costs the store, and the least, the median and the most of the seconds from
	// kill -9 until somebody else had the name.
	crashTable = table{"../../../../docs/crash.csv", 2, []string{"store", "ttl_s", "holders", "requests_per_second_and_holder", "freed_least_s", "freed_p50_s", "freed_most_s", "foreign_cpu"}}
)

func (t table) load() ([]figures, error) {
	text, err := os.ReadFile(t.file)
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(lines) == 0 || !slices.Equal(lines[0], t.titles) {
		return nil, errors.Join(err, fmt.Errorf("%s does not begin with %v", t.file, t.titles))
	}
	var all []figures
	for _, line := range lines[1:] {
		f := figures{key: line[:t.keys]}
		if storeOf(line[0]) == nil {
			return nil, fmt.Errorf("%s: no store is called %q", t.file, line[0])
		}
		for _, cell := range line[t.keys:] {
			n, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.file, err)
			}
			f.n = append(f.n, n)
		}
		all = append(all, f)
	}
	return all, nil
}

// keep puts figures into the file, in place of those of the same case.
func (t table) keep(fresh []figures) error {
	all, err := t.load()
	if err != nil {
		return err
	}
	for _, f := range fresh {
		if i := slices.IndexFunc(all, func(old figures) bool { return slices.Equal(old.key, f.key) }); i >= 0 {
			all[i] = f
		} else {
			all = append(all, f)
		}
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	w.Write(t.titles)
	for _, f := range all {
		line := slices.Clone(f.key)
		for _, n := range f.n {
			line = append(line, digits(n))
		}
		w.Write(line)
	}
	w.Flush()
	return errors.Join(w.Error(), os.WriteFile(t.file, []byte(text.String()), 0o644))
}

func digits(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }

// crowdFigures are the medians of a peer's repetitions.
func crowdFigures(s *store, peer string, w workload, results []result) figures {
	f := figures{[]string{s.name, peer, strconv.Itoa(w.clients * w.processes)}, []float64{float64(len(results))}}
	for _, of := range []func(result) float64{perSecond, overFairShare, fairness.of, starved.of, perChange.of,
		func(r result) float64 { return r.Foreign }} {
		f.n = append(f.n, median(results, of))
	}
	return f
}

func crashFigures(s *store, ttl time.Duration, c crashed) figures {
	freed := slices.Sorted(slices.Values(c.freed))
	n := len(freed)
	return figures{[]string{s.name, digits(ttl.Seconds())}, []float64{float64(n), c.requests, freed[0].Seconds(), quantile(freed, 0.5).Seconds(), freed[n-1].Seconds(), c.foreign}}
}

// speeds is the guide's table of speeds: medians, and beside Redis the medians and ranges of the
// ratios within the repetitions.
func speeds(all []figures) []byte {
	var b strings.Builder
	b.WriteString("| store | acquire and release, p50 | 64 goroutines, a name each: pairs/s | × Redis | nobody has the name between two owners, p50 | × Redis |\n|---|---|---|---|---|---|\n")
	for _, s := range stores {
		pair, _ := besideRedis(all, s, 0)
		many, manyTimes := besideRedis(all, s, 1)
		gap, gapTimes := besideRedis(all, s, 2)
		if pair > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", s.title, micros(pair), rounded(many), manyTimes, micros(gap), gapTimes)
		}
	}
	return []byte(b.String())
}

// besideRedis returns the median of a store's i-th figure, and how many times Redis's it is.
func besideRedis(all []figures, s *store, i int) (middle float64, times string) {
	var own, relative []float64
	for _, f := range all {
		if f.key[0] != s.name {
			continue
		}
		own = append(own, f.n[i])
		for _, redis := range all {
			if redis.key[0] == redisStore.name && redis.key[1] == f.key[1] {
				relative = append(relative, f.n[i]/redis.n[i])
			}
		}
	}
	_, middle, _ = spread(own)
	if s == &redisStore {
		return middle, "1"
	}
	low, mid, high := spread(relative)
	return middle, fmt.Sprintf("%s (%s–%s)", factor(mid), factor(low), factor(high))
}

// crashes is the guide's table of names that are free again.
func crashes(all []figures) []byte {
	var ttls []string
	for _, f := range all {
		if !slices.Contains(ttls, f.key[1]) {
			ttls = append(ttls, f.key[1])
		}
	}
	slices.SortFunc(ttls, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	var b strings.Builder
	b.WriteString("| store |")
	for _, ttl := range ttls {
		fmt.Fprintf(&b, " TTL %ss |", ttl)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(ttls)) + "\n")
	for _, s := range stores {
		if !slices.ContainsFunc(all, func(f figures) bool { return f.key[0] == s.name }) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", s.title)
		for _, ttl := range ttls {
			i := slices.IndexFunc(all, func(f figures) bool { return f.key[0] == s.name && f.key[1] == ttl })
			if i < 0 {
				b.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&b, " %s–%s s", seconds(all[i].n[2]), seconds(all[i].n[4]))
			if requests := all[i].n[1]; requests > 0 {
				fmt.Fprintf(&b, "; %.2f/s", requests)
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.2f", s)
	}
	return fmt.Sprintf("%.1f", s)
}

// factor writes a ratio with two digits, or all that are before the point.
func factor(f float64) string {
	if f >= 10 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.2g", f)
}

// rounded writes a number with two digits and, behind them, zeros.
func rounded(f float64) string {
	if f <= 0 {
		return "0"
	}
	unit := math.Pow10(max(0, int(math.Log10(f))-1))
	return grouped(math.Round(f/unit) * unit)
}

// grouped writes a number without a fraction, with commas.
func grouped(f float64) string {
	digits := fmt.Sprintf("%.0f", f)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// micros writes microseconds with two digits or so.
func micros(us float64) string {
	if us < 1000 {
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
