//go:build soak

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo/servers"
)

// flashSale runs strategies once, with a store ("": the demo's own), and returns their results by
// name.
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
	dir := ownTempDir(t)
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

// TestWrongStrategies: each of them oversells in at least one of a few runs.
func TestWrongStrategies(t *testing.T) {
	dir := ownTempDir(t)
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

// TestTimeBoundsRuns: with no time left each strategy is still run once.
func TestTimeBoundsRuns(t *testing.T) {
	ownTempDir(t)
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

// TestCancel ends the demo at several points, one of them during a pause. It must leave neither
// processes nor files.
func TestCancel(t *testing.T) {
	for _, name := range []string{"lock", "paused-unfenced"} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(name, after), func(t *testing.T) {
				dir := ownTempDir(t)
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

// TestStoreFails: an unusable store is found before anything is started.
func TestStoreFails(t *testing.T) {
	dir := ownTempDir(t)
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

// pausedSale returns the processes of a run whose first service is stopped at the payment.
func pausedSale(t *testing.T, strategy string) *fleet {
	t.Helper()
	d, err := Options{Users: 10, Stock: 3, Services: 2}.prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.cleanUp(); err != nil {
			t.Error(err)
		}
	})
	s, _ := find(strategy)
	shop, remove, err := d.openDatabase(t.Context(), d.Stock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	f, err := launch(t.Context(), d.services(shop, s))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.pauseFirst(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestKilledService: if a service dies the others are killed, and the error says which one died.
func TestKilledService(t *testing.T) {
	f := pausedSale(t, "paused-fenced")
	if err := f.members[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := f.next()
	if err == nil || !strings.Contains(err.Error(), "process 1: ") || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the line is %+v, the error %v", l, err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
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
