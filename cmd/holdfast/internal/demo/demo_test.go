package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo/servers"
)

// parentEnv has the test program run a demo, which the test kills.
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

// ownTempDir gives the test a temporary directory of its own, and returns it.
func ownTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

// expectNothingLeft fails if the demo has left files, or processes other than the test's servers.
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

// TestStrategyNames pins the names, which are an interface.
func TestStrategyNames(t *testing.T) {
	names, what := Strategies()
	if got, want := strings.Join(names, " "), "none lock process-mutex released-before-commit paused-unfenced paused-fenced for-update version decrement-then-rollback insert-unique atomic-update"; got != want {
		t.Errorf("strategies are %s, want %s", got, want)
	}
	for i, w := range what {
		if w == "" || strings.Contains(w, "\n") {
			t.Errorf("%s: what it does is not a line: %q", names[i], w)
		}
	}
}

// TestServices: each user's requests are sent, those of one who clicks twice to two services.
func TestServices(t *testing.T) {
	d := &demonstration{Options: Options{Users: 10, Services: 3, Store: "file:///locks"}}
	s, _ := find("paused-fenced")
	var got [][]int
	for i, c := range d.services(&shop{}, s) {
		if c.Pause != (i == 0) || c.Store != d.Store {
			t.Errorf("service %d: %+v", i, c)
		}
		got = append(got, c.Users)
	}
	if want := "[[0 2 4 7 9] [0 3 5 8] [1 4 6 8]]"; fmt.Sprint(got) != want {
		t.Errorf("the requests are %v, want %s", got, want)
	}
}

// TestBadOptions: bad options are refused before anything is done (P10).
func TestBadOptions(t *testing.T) {
	dir := ownTempDir(t)
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
