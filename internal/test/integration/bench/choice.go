package bench

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The figures of the guide docs/choose.md, and the curve that is drawn from some of them.
const (
	guideFile  = "../../../../docs/choose.md"
	speedFile  = "../../../../docs/speed.csv"
	crashFile  = "../../../../docs/crash.csv"
	crashPlot  = "../../../../docs/crash.svg"
	besideName = "redis" // the store beside which the others are measured
)

// choiceStores are the stores of the guide, in its order.
var choiceStores = []struct{ name, title string }{
	{"redis", "Redis"}, {"etcd", "etcd"}, {"postgres", "PostgreSQL"}, {"mariadb", "MariaDB"}, {"mysql", "MySQL"},
	{"sqlite", "SQLite"}, {"files", "files"},
}

func choiceOrder(store string) int {
	return slices.IndexFunc(choiceStores, func(s struct{ name, title string }) bool { return s.name == store })
}

// speed is what one repetition has measured of one store.
type speed struct {
	store   string
	rep     int           // repetitions of the same number were measured together
	pair    time.Duration // how long one goroutine takes to acquire and release: half of the times are longer
	many    float64       // how often 64 goroutines, with a name each, acquire and release each second
	gap     time.Duration // how long nobody has the name between two owners: half of the times are longer
	foreign float64       // how much of the machine others used: 0 to 1
}

// fall is one point of the curve: how soon the name of a killed holder is free, and at what cost.
type fall struct {
	store    string
	ttl      time.Duration
	holders  int
	requests float64 // of a holder each second; 0: nobody counts them
	// The least, the median and the most of the times from kill -9 until somebody else had the name.
	least, middle, most time.Duration
	foreign             float64
}

func fallOf(store string, ttl time.Duration, c crashed) fall {
	freed := slices.Sorted(slices.Values(c.freed))
	n := len(freed)
	return fall{store, ttl, n, c.requests, freed[0], quantile(freed, 0.5), freed[n-1], c.foreign}
}

var (
	speedTitles = []string{"store", "repetition", "pair_p50_us", "pairs_per_second_of_64", "gap_p50_us", "foreign_cpu"}
	crashTitles = []string{"store", "ttl_s", "holders", "requests_per_second_and_holder", "freed_least_s", "freed_p50_s", "freed_most_s", "foreign_cpu"}
)

func digits(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }

func micros(d time.Duration) string { return digits(float64(d) / float64(time.Microsecond)) }

func seconds(d time.Duration) string { return digits(d.Seconds()) }

// writeTable writes the lines of a table with its titles to a file.
func writeTable(file string, titles []string, lines [][]string) error {
	var text strings.Builder
	w := csv.NewWriter(&text)
	w.Write(titles)
	w.WriteAll(lines)
	if err := w.Error(); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// readTable reads such a file: the first column as text, the others as numbers. A file that is not
// there has no lines.
func readTable(file string, titles []string) (names []string, figures [][]float64, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(lines) == 0 || !slices.Equal(lines[0], titles) {
		return nil, nil, errors.Join(err, fmt.Errorf("%s does not begin with %v", file, titles))
	}
	for _, line := range lines[1:] {
		row := make([]float64, len(line)-1)
		for i, cell := range line[1:] {
			if row[i], err = strconv.ParseFloat(cell, 64); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		if choiceOrder(line[0]) < 0 {
			return nil, nil, fmt.Errorf("%s: no store is called %q", file, line[0])
		}
		names, figures = append(names, line[0]), append(figures, row)
	}
	return names, figures, nil
}

func loadSpeeds(file string) ([]speed, error) {
	names, figures, err := readTable(file, speedTitles)
	var all []speed
	for i, f := range figures {
		all = append(all, speed{names[i], int(f[0]), time.Duration(f[1] * 1e3), f[2], time.Duration(f[3] * 1e3), f[4]})
	}
	return all, err
}

func saveSpeeds(file string, all []speed) error {
	slices.SortStableFunc(all, func(a, b speed) int {
		return cmp.Or(a.rep-b.rep, choiceOrder(a.store)-choiceOrder(b.store))
	})
	var lines [][]string
	for _, s := range all {
		lines = append(lines, []string{s.store, strconv.Itoa(s.rep), micros(s.pair), digits(s.many), micros(s.gap), digits(s.foreign)})
	}
	return writeTable(file, speedTitles, lines)
}

func loadFalls(file string) ([]fall, error) {
	names, figures, err := readTable(file, crashTitles)
	var all []fall
	for i, f := range figures {
		span := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Microsecond) }
		all = append(all, fall{names[i], span(f[0]), int(f[1]), f[2], span(f[3]), span(f[4]), span(f[5]), f[6]})
	}
	return all, err
}

// saveFalls puts points into the file, in place of those of the same store and TTL.
func saveFalls(file string, fresh []fall) error {
	all, err := loadFalls(file)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(old fall) bool {
		return slices.ContainsFunc(fresh, func(f fall) bool { return f.store == old.store && f.ttl == old.ttl })
	})
	all = append(all, fresh...)
	slices.SortFunc(all, func(a, b fall) int {
		return cmp.Or(choiceOrder(a.store)-choiceOrder(b.store), cmp.Compare(a.ttl, b.ttl))
	})
	var lines [][]string
	for _, f := range all {
		lines = append(lines, []string{f.store, seconds(f.ttl), strconv.Itoa(f.holders), digits(f.requests),
			seconds(f.least), seconds(f.middle), seconds(f.most), digits(f.foreign)})
	}
	return writeTable(file, crashTitles, lines)
}

// speedTable is the guide's table of speeds: medians, and beside Redis the medians and ranges of the
// ratios within the repetitions.
func speedTable(all []speed) []byte {
	var b strings.Builder
	b.WriteString("| store | acquire and release, p50 | 64 goroutines, a name each: pairs/s | × Redis | nobody has the name between two owners, p50 | × Redis |\n|---|---|---|---|---|---|\n")
	for _, s := range choiceStores {
		pair, _ := besideRedis(all, s.name, func(s speed) float64 { return float64(s.pair) })
		many, manyTimes := besideRedis(all, s.name, func(s speed) float64 { return s.many })
		gap, gapTimes := besideRedis(all, s.name, func(s speed) float64 { return float64(s.gap) })
		if pair == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", s.title, short(pair), rounded(many), manyTimes, short(gap), gapTimes)
	}
	return []byte(b.String())
}

// besideRedis returns the median of a store's figure, and how many times Redis's it is.
func besideRedis(all []speed, store string, of func(speed) float64) (middle float64, times string) {
	var figures, relative []float64
	for _, ours := range all {
		if ours.store != store {
			continue
		}
		figures = append(figures, of(ours))
		for _, redis := range all {
			if redis.store == besideName && redis.rep == ours.rep {
				relative = append(relative, of(ours)/of(redis))
			}
		}
	}
	_, middle, _ = spread(figures)
	low, mid, high := spread(relative)
	if store == besideName {
		return middle, "1"
	}
	return middle, fmt.Sprintf("%s (%s–%s)", factor(mid), factor(low), factor(high))
}

// crashTable is the guide's table of names that are free again.
func crashTable(all []fall) []byte {
	var ttls []time.Duration
	for _, f := range all {
		if !slices.Contains(ttls, f.ttl) {
			ttls = append(ttls, f.ttl)
		}
	}
	slices.Sort(ttls)
	var b strings.Builder
	b.WriteString("| store |")
	for _, ttl := range ttls {
		fmt.Fprintf(&b, " TTL %v |", ttl)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(ttls)) + "\n")
	for _, s := range choiceStores {
		if !slices.ContainsFunc(all, func(f fall) bool { return f.store == s.name }) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", s.title)
		for _, ttl := range ttls {
			i := slices.IndexFunc(all, func(f fall) bool { return f.store == s.name && f.ttl == ttl })
			if i < 0 {
				b.WriteString(" – |")
				continue
			}
			f := all[i]
			fmt.Fprintf(&b, " %s–%s s", secs(f.least), secs(f.most))
			if f.requests > 0 {
				fmt.Fprintf(&b, "; %.2f/s", f.requests)
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}

func secs(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.2f", d.Seconds())
	}
	return fmt.Sprintf("%.1f", d.Seconds())
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

// short writes nanoseconds with two digits or so.
func short(ns float64) string {
	if d := time.Duration(ns); d < time.Millisecond {
		return fmt.Sprintf("%.0f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f ms", ns/1e6)
}
