package explore_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

var (
	exploreFor = flag.Duration("explore.for", 2*time.Second, "how long the large worlds are explored")
)

// small are three callers of one name, with everything that can happen to them, one or two
// mishaps at a time. All of it is explored, to whatever depth.
func small() map[string]*setup {
	three := []wish{{name: "a"}, {name: "a"}, {name: "a"}}
	two := three[:2]
	tries := []wish{{name: "a"}, {name: "a", try: true}, {name: "a"}}
	readers := []wish{{name: "a", mode: driver.Shared}, {name: "a", mode: driver.Shared}, {name: "a"}}
	return map[string]*setup{
		"hand-over":                {wishes: three, block: 3},
		"a stranger":               {wishes: three, block: 3, stranger: true},
		"cancel":                   {wishes: three, block: 3, budget: budget{cancels: 1}},
		"cancel, no hand-over":     {wishes: three, budget: budget{cancels: 2}},
		"a lost answer":            {wishes: three, block: 3, budget: budget{losses: 1}},
		"a failed request":         {wishes: three, block: 3, budget: budget{fails: 2}},
		"break":                    {wishes: three, block: 3, budget: budget{breaks: 1}},
		"close":                    {wishes: three, block: 3, budget: budget{closes: 1}},
		"a try":                    {wishes: tries, block: 3, budget: budget{cancels: 1}},
		"readers":                  {wishes: readers, block: 3, budget: budget{cancels: 1}},
		"no queue":                 {wishes: three, block: 3, noQueue: true, budget: budget{cancels: 1}},
		"no queue, a lost answer":  {wishes: two, block: 3, noQueue: true, stranger: true, budget: budget{losses: 1}},
		"two: cancel, lost answer": {wishes: two, block: 3, stranger: true, budget: budget{cancels: 1, losses: 1}},
		"two: break, failure":      {wishes: two, block: 3, stranger: true, budget: budget{breaks: 1, fails: 1}},
		"two: close, lost answer":  {wishes: two, block: 3, budget: budget{closes: 1, losses: 1}},
	}
}

// large are worlds in which time passes while everything else happens: more than can be
// explored whole.
func large() map[string]*setup {
	return map[string]*setup{
		"one caller, renewed": {
			wishes: []wish{{name: "a", maxHold: 50 * time.Millisecond}}, block: 3, stranger: true,
			budget: budget{breaks: 1, fails: 1, losses: 1, times: 8},
		},
		"two callers, renewed": {
			wishes: []wish{{name: "a"}, {name: "a", maxHold: 30 * time.Millisecond}}, block: 3, stranger: true,
			budget: budget{fails: 1, breaks: 1, times: 6},
		},
		"everything": {
			wishes: []wish{{name: "a", maxHold: 30 * time.Millisecond}, {name: "a"}, {name: "b"}}, block: 3, stranger: true,
			budget: budget{cancels: 1, losses: 1, fails: 1, breaks: 1, closes: 1, times: 8},
		},
	}
}

// TestClient explores the engine that ships. The race detector would make that ten times as
// slow and finds nothing in one goroutine, so with it a process without it does the work.
func TestClient(t *testing.T) {
	if raceEnabled {
		text, err := child(t, "", testserver.Long(10*time.Second, time.Minute))
		t.Log(text)
		if err != nil {
			t.Error(err)
		}
		return
	}
	for name, s := range small() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.patient, s.times = true, -1
			s.model().Holds(t, 2_000_000)
		})
	}
	for name, s := range large() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, all := s.model().For(*exploreFor)
			t.Logf("%v, everything: %t", r, all)
			for _, f := range r.Findings {
				t.Error(f)
			}
			s.times = -1
			s.model().Walks(t, 300, 400)
		})
	}
}

// child explores in a process of its own, with files of the engine replaced as the overlay
// says.
func child(t *testing.T, overlay string, d time.Duration) (string, error) {
	args := []string{"test", "-count=1", "-run", "^TestClient$", "-v"}
	if overlay != "" {
		args = append(args, "-overlay", overlay, "-failfast")
	}
	args = append(args, ".", "-explore.for", d.String())
	text, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	return string(text), err
}

// mistakes are planted in the engine, each in a copy of its file. All must be found.
var mistakes = []struct{ name, file, right, wrong, found string }{
	{"a hand-over is not ended by a failed renewal", "renew.go", "\te.endCohortOf(h) // the time in doubt is the holder's, to stop in\n", "", "P"},
}

// TestMistakes: each mistake is found.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(filepath.Join("..", "engine", m.file))
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.right); n != 1 {
				t.Fatalf("%s has the right lines %d times", m.file, n)
			}
			dir := t.TempDir()
			wrong := filepath.Join(dir, m.file)
			if err := os.WriteFile(wrong, []byte(strings.Replace(string(source), m.right, m.wrong, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(map[string]map[string]string{"Replace": {path: wrong}})
			if err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(overlay, text, 0o600); err != nil {
				t.Fatal(err)
			}
			said, err := child(t, overlay, 5*time.Second)
			if err == nil || !strings.Contains(said, m.found) || strings.Contains(said, "[build failed]") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
