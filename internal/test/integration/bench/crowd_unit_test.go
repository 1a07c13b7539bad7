//go:build soak

package bench

import (
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

var draw = flag.Bool("draw", false, "draw docs/crowds.svg and docs/crash.svg anew, and write the figures of docs/choose.md")

// TestCrowdsMeasure lets small crowds want a name, each client with connections of its own.
func TestCrowdsMeasure(t *testing.T) {
	postgres := startPostgres(t)
	for store, start := range map[string]func() (string, func()){
		"redis": func() (string, func()) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			return server.Addr, server.Kill
		},
		"files":    func() (string, func()) { return t.TempDir(), func() {} },
		"postgres": func() (string, func()) { return postgres.Addr, func() {} },
	} {
		t.Run(store, func(t *testing.T) {
			for _, together := range gatherings([]int{4}) {
				if together[0].name == "impatience1000" || (together[0].name == "pool") != (store == "postgres") {
					continue
				}
				for i := range together { // two processes of two clients
					together[i].workers, together[i].clients, together[i].processes = 2, 2, 2
				}
				crowdMeasures(t, crowdStores[store], together, start)
			}
		})
	}
}

func crowdMeasures(t *testing.T, s *store, together []gathering, start func() (string, func())) {
	name := s.ours
	if together[0].name == "pool" {
		name = sharedPool
	}
	set := settings{reps: 1, window: 100 * time.Millisecond, peers: []string{name}}
	for i, got := range measureCrowd(s, together, set, t.TempDir(), start) {
		g := together[i]
		if len(got[name]) != 1 {
			t.Fatalf("%s: %d results, want 1", g.name, len(got[name]))
		}
		r := got[name][0]
		if r.Failure != "" || r.Overlaps > 0 || r.Stuck > 0 {
			t.Errorf("%s: %d failures (%s), %d overlaps, %d stuck", g.name, r.Failures, r.Failure, r.Overlaps, r.Stuck)
		}
		if len(r.Holds) != 4 || r.Starved > 0 && g.patience == 0 {
			t.Errorf("%s: holds %v, want some of each of 4 clients", g.name, r.Holds)
		}
		if measured := map[bool]bool{true: r.Drain > 0, false: r.PerSecond > 0}[g.once]; !measured {
			t.Errorf("%s: nothing was measured: %+v", g.name, r)
		}
		if once := slices.Max(r.Holds) == 1; g.once && !once {
			t.Errorf("%s: holds %v, want one each", g.name, r.Holds)
		}
		if s.name == "redis" && !g.once && r.PerChange < 1 {
			t.Errorf("%s: %v commands for an owner change", g.name, r.PerChange)
		}
		if s.name == "redis" && g.idle && r.Connections < 4 {
			t.Errorf("%s: %d connections of 4 clients", g.name, r.Connections)
		}
		var table strings.Builder
		got.print(&table, s, g.workload, "")
		if !strings.Contains(table.String(), "| "+name+" | ") {
			t.Errorf("%s: the table has no line of %s:\n%s", g.name, name, &table)
		}
	}
}

func TestGatherings(t *testing.T) {
	for clients, each := range map[int]int{2: 2, 4: 4, 50: 50, 64: 32, 256: 32, 1000: 50} {
		g := gatheringOf("x", "", clients, nil)
		if g.workers != each || g.clients != each || g.total(peer{}) != clients || g.total(peer{alone: true}) != 1 {
			t.Errorf("%d clients: %d processes of %d with %d workers, want %d each", clients, g.processes, g.clients, g.workers, each)
		}
	}
	for _, together := range gatherings([]int{4, 100}) {
		if g := together[0]; g.idle && g.total(peer{}) != 100 {
			t.Errorf("%d wait, want as many as the greatest crowd has: 100", g.total(peer{}))
		}
	}
}

func TestCrowdFigures(t *testing.T) {
	half, whole := 500*time.Millisecond, time.Second
	r := joined([]result{
		{Holds: []int64{4, 4}, Waits: []time.Duration{half, half}, Failures: 1, Failure: "first", Stuck: 1},
		{Holds: []int64{4, 0}, Waits: []time.Duration{half, whole}, Failures: 2, Failure: "second", GaveUp: 3},
	})
	if r.Starved != 1 || r.P99 != whole || r.P50 != half || r.Fairness != 0.75 || r.Failures != 3 || r.Failure != "first" || r.GaveUp != 3 || r.Stuck != 1 {
		t.Errorf("joined: %+v", r)
	}
	r.PerSecond = 8
	if got := overFairShare(r); got != 0 {
		t.Errorf("with one of four starved p99 ÷ fair share is %v, want 0: unknown", got)
	}
	r.Starved = 0
	if got := overFairShare(r); got != 2 { // eight changes a second among four are half a second each
		t.Errorf("p99 ÷ fair share is %v, want 2", got)
	}
	before := reading{at: time.Unix(0, 0), ticks: 100}
	if got := (reading{at: time.Unix(4, 0), ticks: 200}).cpuSince(before); got != 0.25 {
		t.Errorf("100 ticks in 4 s are %v of a core, want 0.25", got)
	}
}

func TestProgramsAreCounted(t *testing.T) {
	e := together(t.Context(), 3, []string{"CODE=75"}, "sh", "-c", "echo late; exit $CODE")
	if e.codes[75] != 3 || e.said != "late" || !strings.HasPrefix(e.String(), "0 have run, exit 75: 3, in ") {
		t.Errorf("%v, %q", e, e.said)
	}
	if e := together(t.Context(), 2, nil, "true"); e.codes[0] != 2 || e.said != "" || !strings.HasPrefix(e.String(), "2 have run, in ") {
		t.Errorf("%v, %q", e, e.said)
	}
	if e := together(t.Context(), 1, nil, "/there/is/no/such/program"); e.codes[-1] != 1 || e.said == "" {
		t.Errorf("%v, %q", e, e.said)
	}
}

// TestTicksOfAServer compares the processor time of a process that works with that of none.
func TestTicksOfAServer(t *testing.T) {
	before := ticksOfFamily()
	for start := time.Now(); cpuOfSelf() < 50*time.Millisecond || time.Since(start) < 50*time.Millisecond; {
	}
	if got := ticksOf([]int{os.Getpid()}); got < before || got == 0 {
		t.Errorf("%d ticks after some work, %d before", got, before)
	}
	if got := ticksOf(nil); got != 0 {
		t.Errorf("no process has %d ticks", got)
	}
}

func TestCurveIsKept(t *testing.T) {
	a := point{of: "before", store: "redis", peer: "holdfast", clients: 4, reps: 3, changes: 5000, unfairness: 1.5, jain: 1, commands: 19, serverCPU: 0.5, foreign: 0.25}
	b, c := a, a
	b.of, b.changes = "now", 6000
	c.clients, c.changes = 64, 900
	fresh := a
	fresh.changes = 7000
	got := merge([]point{c, a}, []point{b, fresh})
	if want := []point{fresh, c, b}; !slices.Equal(got, want) {
		t.Errorf("merged:\n%v\nwant\n%v", got, want)
	}
	var text strings.Builder
	if err := writeCurve(&text, got); err != nil {
		t.Fatal(err)
	}
	again, err := readCurve(strings.NewReader(text.String()))
	if err != nil || !slices.Equal(again, got) {
		t.Errorf("read %v (%v), written %v", again, err, got)
	}
	titles := strings.Join(curveTitles, ",") + "\n"
	for _, bad := range []string{"", "a,b\n", titles + "now,redis,holdfast,four,1,1,1,1,1,1,1,1\n", titles + "now,redis,holdfast,4,1,1,1,1,1,1,1,x\n"} {
		if _, err := readCurve(strings.NewReader(bad)); err == nil {
			t.Errorf("no error of %q", bad)
		}
	}
	if points, err := loadCurve(filepath.Join(t.TempDir(), "none")); points != nil || err != nil {
		t.Errorf("a file that is not there has %v (%v)", points, err)
	}
}

func TestPlot(t *testing.T) {
	var points []point
	for _, n := range []int{1000, 4, 64} {
		for _, of := range []string{"before", "now"} {
			points = append(points, point{of: of, store: "redis", peer: "holdfast", clients: n, changes: float64(100000 / n), unfairness: 1.2})
		}
		points = append(points, point{of: "now", store: "redis", peer: "a < b", clients: n, changes: float64(1000 / n), unfairness: 12})
	}
	got := plot(points)
	parse := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := parse.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("this is no XML: %v\n%s", err, got)
		}
	}
	for _, part := range []string{">Redis<", ">holdfast<", ">holdfast, before<", ">a &lt; b<", ">100,000<"} {
		if !strings.Contains(got, part) {
			t.Errorf("the plot has no %s", part)
		}
	}
	if strings.Contains(got, "PostgreSQL") {
		t.Error("the plot has a store without points")
	}
	// 3 lines of 3 points in two panels, but for 1000 / 1000 = 1 on the logarithmic axis' ground.
	if n := strings.Count(got, "<circle"); n != 18 {
		t.Errorf("%d dots, want 18", n)
	}
	points[0].changes = 0 // nobody had the lock
	if n := strings.Count(plot(points), "<circle"); n != 17 {
		t.Errorf("%d dots with one point that is not on the axis, want 17", n)
	}
	if n := strings.Count(plot(points), "m-4 -4l8 8"); n != 1 {
		t.Errorf("%d crosses, want one in the panel of owner changes", n)
	}
	if l := linesOf(points, "redis"); len(l) != 3 || l[0].class != "now" || l[1].class != "before" || l[2].class != "p0" || l[0].points[0].clients != 4 {
		t.Errorf("lines %+v", l)
	}
	peers := linesOf([]point{{of: "now", store: "redis", peer: "p", clients: 4, changes: 1}, {of: "old", store: "redis", peer: "p", clients: 4, changes: 2}}, "redis")
	if len(peers) != 1 || len(peers[0].points) != 1 || peers[0].points[0].changes != 1 {
		t.Errorf("a peer that was measured twice has lines %+v, want its point of now", peers)
	}
	for e, want := range map[int]string{-1: "0.1", 0: "1", 3: "1,000", 6: "1,000,000"} {
		if got := power(e); got != want {
			t.Errorf("10^%d is %q, want %q", e, got, want)
		}
	}
}

// TestPlotIsCurrent compares docs/crowds.svg with docs/crowds.csv.
func TestPlotIsCurrent(t *testing.T) {
	points, err := loadCurve(curveFile)
	if err != nil || len(points) == 0 {
		t.Fatalf("%d points (%v)", len(points), err)
	}
	want := plot(points)
	if *draw {
		if err := os.WriteFile(plotFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(plotFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/crowds.svg is not what docs/crowds.csv says: run go test -run PlotIsCurrent ./internal/test/integration/bench -draw")
	}
}
