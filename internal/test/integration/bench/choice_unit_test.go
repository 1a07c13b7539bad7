//go:build soak

package bench

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/guarantees"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestCrashMeasures kills two holders, and sees both names free no later than promised. Files are
// free as soon as the kernel has closed the dead process's.
func TestCrashMeasures(t *testing.T) {
	const ttl = time.Second
	for _, c := range []struct {
		store string
		start func() string
		most  time.Duration
	}{
		{"redis", func() string { return testserver.StartRedis(t, testserver.RedisOptions{}).Addr }, ttl + 5*time.Second},
		{"files", func() string { return t.TempDir() }, 5 * time.Second},
	} {
		t.Run(c.store, func(t *testing.T) {
			t.Parallel()
			got, err := crash(t.Context(), stores[c.store], c.start(), ttl, ttl, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.freed) != 2 || slices.Min(got.freed) <= 0 || slices.Max(got.freed) > c.most {
				t.Errorf("the names were free after %v, want two times up to %v", got.freed, c.most)
			}
			// Three renewals in a TTL of a second; a busy machine may delay some.
			if c.store == "redis" && (got.requests < 1 || got.requests > 10) {
				t.Errorf("%v requests each second, want about 3", got.requests)
			}
		})
	}
}

func TestHolderThatCannotHold(t *testing.T) {
	_, err := crash(t.Context(), stores["redis"], "127.0.0.1:1", time.Second, time.Second, 1)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("without a server: %v, want what the holder said", err)
	}
}

func TestChoiceFiguresAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.csv")
	speeds := []speed{
		{"redis", 0, 50 * time.Microsecond, 20000, 400 * time.Microsecond, 0.25},
		{"etcd", 0, 1250 * time.Microsecond, 4000, 2 * time.Millisecond, 0.5},
		{"redis", 1, 100 * time.Microsecond, 10000, 400 * time.Microsecond, 0.25},
		{"etcd", 1, 1500 * time.Microsecond, 4000, 4 * time.Millisecond, 0.5},
	}
	if err := saveSpeeds(file, slices.Clone(speeds)); err != nil {
		t.Fatal(err)
	}
	if got, err := loadSpeeds(file); err != nil || !slices.Equal(got, speeds) {
		t.Errorf("loaded %v (%v), saved %v", got, err, speeds)
	}
	if got := string(speedTable(speeds)); !strings.Contains(got, "| Redis | 75 µs | 15,000 | 1 | 400 µs | 1 |\n| etcd | 1.4 ms | 4,000 | 0.3 (0.2–0.4) | 3.0 ms | 7.5 (5–10) |\n") {
		t.Errorf("the table is\n%s", got)
	}
	file = filepath.Join(t.TempDir(), "y.csv")
	old := []fall{{"etcd", 2 * time.Second, 10, 4, time.Second, 1500 * time.Millisecond, 2 * time.Second, 0}}
	fresh := []fall{
		{"redis", time.Second, 10, 3, 700 * time.Millisecond, 800 * time.Millisecond, time.Second, 0.5},
		{"etcd", 2 * time.Second, 10, 5, time.Second, 1500 * time.Millisecond, 2 * time.Second, 0},
	}
	for _, points := range [][]fall{old, fresh} {
		if err := saveFalls(file, points); err != nil {
			t.Fatal(err)
		}
	}
	got, err := loadFalls(file)
	if err != nil || !slices.Equal(got, fresh) {
		t.Errorf("loaded %v (%v), want %v", got, err, fresh)
	}
	if table := string(crashTable(got)); !strings.Contains(table, "| Redis | 0.70–1.0 s; 3.00/s | – |\n| etcd | – | 1.0–2.0 s; 5.00/s |\n") {
		t.Errorf("the table is\n%s", table)
	}
	titles := strings.Join(crashTitles, ",") + "\n"
	for _, bad := range []string{"", "a,b\n", titles + "redis,1,1,1,1,1,1,x\n", titles + "nostore,1,1,1,1,1,1,1\n"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadFalls(file); err == nil {
			t.Errorf("no error of %q", bad)
		}
	}
}

func TestPlotOfCrashes(t *testing.T) {
	second := time.Second
	got := plotFalls([]fall{
		{"redis", second, 10, 3, second / 2, second, second, 0}, {"redis", 10 * second, 10, 0.3, 7 * second, 8 * second, 10 * second, 0},
		{"etcd", 2 * second, 10, 5, second, 2 * second, 2 * second, 0}, {"files", second, 10, 0, 1, 1, 1, 0},
	})
	parse := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := parse.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("this is no XML: %v\n%s", err, got)
		}
	}
	for _, part := range []string{"<title", "<desc", "prefers-color-scheme: dark", ">Redis<", ">etcd<", ">10 s<"} {
		if !strings.Contains(got, part) {
			t.Errorf("the plot has no %s", part)
		}
	}
	if n := strings.Count(got, "<circle"); n != 3 || strings.Contains(got, ">files<") {
		t.Errorf("%d dots, want 3: nobody counts the requests to files", n)
	}
	if low, high := around([]float64{0.6, 3}, []float64{0.5, 1, 2, 5, 10}); low != 0.5 || high != 5 {
		t.Errorf("0.6 and 3 are between %v and %v, want 0.5 and 5", low, high)
	}
}

// TestGuideIsCurrent compares the figures of docs/choose.md, and docs/crash.svg, with the files that
// have them.
func TestGuideIsCurrent(t *testing.T) {
	speeds, err := loadSpeeds(speedFile)
	if err != nil || len(speeds) == 0 {
		t.Fatalf("%d speeds (%v)", len(speeds), err)
	}
	falls, err := loadFalls(crashFile)
	if err != nil || len(falls) == 0 {
		t.Fatalf("%d crashes (%v)", len(falls), err)
	}
	text, err := os.ReadFile(guideFile)
	if err != nil {
		t.Fatal(err)
	}
	guide := text
	for part, table := range map[string][]byte{"speed": speedTable(speeds), "crash": crashTable(falls)} {
		if guide, err = guarantees.SplicePart(guide, part, table); err != nil {
			t.Fatalf("%s: %v", guideFile, err)
		}
	}
	for file, want := range map[string]string{guideFile: string(guide), crashPlot: plotFalls(falls)} {
		if *draw {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the figures say (%v): run go test -run GuideIsCurrent ./internal/test/integration/bench -draw", file, err)
		}
	}
}
