package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// parentEnv has the test program run a demo, which is to be killed.
const parentEnv = "HOLDFAST_DEMO_TEST_PARENT"

// TestMain lets the test program be the processes of the demo too.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child())
	}
	if os.Getenv(parentEnv) != "" {
		fmt.Fprintln(os.Stderr, Run(context.Background(), Options{Strategies: []string{"paused-unfenced"}}))
		os.Exit(1)
	}
	// With the race detector each process would wait a second before it ends.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
	os.Exit(m.Run())
}

// own makes the temporary directory of everything in the test one of its own,
// and returns it.
func own(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

// expectNothingLeft fails if the demo has left files or processes, other than the
// test's servers.
func expectNothingLeft(t *testing.T, dir string, servers ...string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		t.Errorf("%s is left", file.Name())
	}
	for _, process := range children(t) {
		if !slices.Contains(servers, process) {
			t.Errorf("process %s is left", process)
		}
	}
}

// flashSale runs strategies once, with a store ("": the demo's own), and returns what
// they came to, by name.
func flashSale(t *testing.T, store string, strategies []string) map[string]Result {
	t.Helper()
	var out bytes.Buffer
	if err := Run(t.Context(), Options{Store: store, JSON: true, Out: &out, Repeats: 1, Strategies: strategies}); err != nil {
		t.Fatal(err)
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(strategies) {
		t.Fatalf("%d results for %d strategies", len(results), len(strategies))
	}
	byName := map[string]Result{}
	for _, r := range results {
		t.Logf("%+v", r)
		byName[r.Strategy] = r
	}
	return byName
}

// TestRightStrategies: they never oversell, and they sell everything.
func TestRightStrategies(t *testing.T) {
	dir := own(t)
	expectRight(t, "")
	expectNothingLeft(t, dir)
}

// expectRight runs the strategies that are right, with a store.
func expectRight(t *testing.T, store string) {
	t.Helper()
	var right []string
	for _, s := range strategies {
		if !s.wrong {
			right = append(right, s.name)
		}
	}
	for name, r := range flashSale(t, store, right) {
		if r.Runs != 1 || r.OversoldRuns != 0 || r.ViolatedRuns != 0 ||
			r.Oversold != 0 || r.UserViolations != 0 || r.Sold != r.Stock || r.Left != 0 || r.ExpectedWrong {
			t.Errorf("%s: %+v", name, r)
		}
		if refused := r.StaleRefused > 0; refused != (name == "paused-fenced") {
			t.Errorf("%s: %d writes refused", name, r.StaleRefused)
		}
	}
}

// TestWrongStrategies: each of them oversells, at the latest in one of a few
// runs.
func TestWrongStrategies(t *testing.T) {
	dir := own(t)
	expectWrong(t, "")
	expectNothingLeft(t, dir)
}

// expectWrong runs the strategies that are wrong, with a store.
func expectWrong(t *testing.T, store string) {
	t.Helper()
	var wrong []string
	for _, s := range strategies {
		if s.wrong {
			wrong = append(wrong, s.name)
		}
	}
	for try := 1; len(wrong) > 0; try++ {
		if try > 5 {
			t.Fatalf("did not oversell in %d runs: %v", try-1, wrong)
		}
		for name, r := range flashSale(t, store, wrong) {
			if !r.ExpectedWrong || r.Runs != 1 || r.Oversold != max(0, r.Sold-r.Stock) || (r.OversoldRuns > 0) != (r.Oversold > 0) {
				t.Errorf("%s: %+v", name, r)
			}
			if r.Oversold > 0 {
				wrong = slices.DeleteFunc(wrong, func(s string) bool { return s == name })
			}
		}
	}
}

// TestStrategyNames pins the names, which are an interface.
func TestStrategyNames(t *testing.T) {
	names, what := Strategies()
	if got, want := strings.Join(names, " "), "none process-mutex released-before-commit lock paused-unfenced paused-fenced for-update version decrement-then-rollback insert-unique atomic-update"; got != want {
		t.Errorf("strategies are %s, want %s", got, want)
	}
	for i, w := range what {
		if w == "" || strings.Contains(w, "\n") {
			t.Errorf("%s: what it does is not a line: %q", names[i], w)
		}
	}
}

// TestTimeBoundsRuns: with no time left each strategy is still run once.
func TestTimeBoundsRuns(t *testing.T) {
	own(t)
	var out, progress bytes.Buffer
	err := Run(t.Context(), Options{
		JSON: true, Out: &out, Progress: &progress,
		Within: time.Nanosecond, Repeats: 5, Users: 6, Stock: 2, Services: 2, Strategies: []string{"atomic-update", "lock"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Runs != 1 || r.Stock != 2 || r.Sold != 2 {
			t.Errorf("%+v", r)
		}
	}
	if got, want := progress.String(), "lock: never oversold in 1 run\natomic-update: never oversold in 1 run\n"; got != want {
		t.Errorf("progress is %q, want %q", got, want)
	}
}

// TestCancel ends the demo at several points, a pause among them: it must leave
// neither processes nor files.
func TestCancel(t *testing.T) {
	for _, name := range []string{"lock", "paused-unfenced"} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(name, after), func(t *testing.T) {
				dir := own(t)
				cause := errors.New("enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(after, func() { cancel(cause) })
				defer timer.Stop()
				if err := Run(ctx, Options{Strategies: []string{name}, Repeats: 100}); !errors.Is(err, cause) {
					t.Errorf("the error is %v, want %v", err, cause)
				}
				expectNothingLeft(t, dir)
			})
		}
	}
}

// TestStoreFails: that is found before anything is begun.
func TestStoreFails(t *testing.T) {
	dir := own(t)
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Options{Store: "file://" + dir + "/file/locks"})
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("the error is %v", err)
	}
	if err := os.Remove(dir + "/file"); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, dir)
}

// begun returns a run whose services are ready, with the database that they
// share.
func begun(t *testing.T, strategy string) *run {
	t.Helper()
	d, err := Options{Users: 10, Stock: 3, Services: 2}.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	})
	s, _ := find(strategy)
	shop, remove, err := d.openPlace(t.Context(), d.Stock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	c := config{Job: "sale", Database: shop.place, Store: d.Store, Name: d.name(strategy), Strategy: strategy, Stock: d.Stock}
	f, err := launch(t.Context(), []config{c, c})
	if err != nil {
		t.Fatal(err)
	}
	return &run{demonstration: d, strategy: s, fleet: f, open: map[int]int{}}
}

// TestKilledService: if a service dies the run fails, and does not wait for its
// answer.
func TestKilledService(t *testing.T) {
	r := begun(t, "paused-fenced")
	if err := r.stopFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.fleet.members[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if m, err := r.fleet.next(t.Context()); err == nil || !strings.Contains(err.Error(), "process 1: ") || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the reply is %+v, the error %v", m, err)
	}
	if err := r.fleet.leave(t.Context()); err == nil || !strings.Contains(err.Error(), "process 1: ") {
		t.Errorf("the error is %v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// TestBadOptions: they are refused before anything is done (P10).
func TestBadOptions(t *testing.T) {
	dir := own(t)
	for want, o := range map[string]Options{
		"no strategy \"x\"": {Strategies: []string{"lock", "x"}},
		"Users is -1":       {Users: -1},
		"Users is 1001":     {Users: 1001},
		"Stock is -1":       {Stock: -1},
		"more users":        {Users: 3},
		"Services is 1":     {Services: 1},
		"Repeats is -1":     {Repeats: -1},
		"in one process":    {Store: "mem://"},
		"no driver":         {Store: "nothing://x"},
		"absolute":          {Store: "file:relative"},
	} {
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	for want, o := range map[string]CronOptions{
		"Replicas is 1":  {Replicas: 1},
		"Ticks is -1":    {Ticks: -1},
		"Tick is 1ms":    {Tick: time.Millisecond, Skew: time.Second},
		"Skew is 1ms":    {Skew: time.Millisecond},
		"MinHold is 1ms": {MinHold: time.Millisecond},
		"MinHold is 1s":  {MinHold: time.Second, Tick: time.Second},
		"in one process": {Store: "mem://"},
	} {
		if err := Cron(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	expectNothingLeft(t, dir)
}

// keys returns the keys of each object of a JSON array.
func keys(t *testing.T, text []byte) (all []string) {
	t.Helper()
	var objects []map[string]any
	if err := json.Unmarshal(text, &objects); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		all = append(all, strings.Join(slices.Sorted(maps.Keys(o)), " "))
	}
	return all
}

// TestWriteFails: an error of the output is returned.
func TestWriteFails(t *testing.T) {
	r, w := io.Pipe()
	broken := errors.New("broken")
	r.CloseWithError(broken)
	if err := writeJSON(w, []Result{{}}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
