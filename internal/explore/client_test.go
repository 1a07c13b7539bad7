package explore_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

var (
	exploreFor = flag.Duration("explore.for", 2*time.Second, "how long the large worlds are explored")
	only       = flag.String("explore.only", "", "explore this world, until something is found")
)

// small are three callers of one name, with everything that can happen to them, one or two
// mishaps at a time. All of it is explored, to whatever depth.
func small() map[string]*setup {
	three := []wish{{name: "a"}, {name: "a"}, {name: "a"}}
	two := three[:2]
	tries := []wish{{name: "a"}, {name: "a", try: true}, {name: "a"}}
	readers := []wish{{name: "a", mode: driver.Shared}, {name: "a", mode: driver.Shared}, {name: "a"}}
	once := wish{name: "a", minHold: ttl}
	limited := []wish{{name: "a", maxHold: ttl / 2, works: 3 * ttl}}
	working := func(d time.Duration) []wish {
		return []wish{{name: "a", works: d}, {name: "a", works: d}, {name: "a", works: d}, {name: "a", works: d}}
	}
	worlds := map[string]*setup{
		"hand-over":                {wishes: three, block: 3},
		"a stranger":               {wishes: three, block: 3, stranger: true},
		"cancel":                   {wishes: three, block: 3, budget: budget{cancels: 1}},
		"cancel, no hand-over":     {wishes: three, budget: budget{cancels: 2}},
		"impatience":               {wishes: three, stranger: true, held: true, budget: budget{cancels: 3}},
		"impatience, lost answer":  {wishes: two, stranger: true, held: true, budget: budget{cancels: 2, losses: 1}},
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
		"minimum hold, impatience": {wishes: []wish{once, once, once}, stranger: true, held: true, budget: budget{cancels: 2}},
		// Suppose the engine asked again under an owner that is withdrawn: that would take back its next hold.
		"no queue, late withdrawals": {wishes: two, noQueue: true, stranger: true, held: true, budget: budget{losses: 1, lates: 2}},
		"late withdrawals":           {wishes: readers[1:], block: 3, stranger: true, held: true, budget: budget{cancels: 1, losses: 1, lates: 1}},
		// Before a store that answers in time nobody loses a lease.
		"renewed in time":             {wishes: working(3 * ttl)[:2], block: 3, stranger: true, budget: budget{cancels: 1}},
		"renewed in time after all":   {wishes: working(2 * ttl)[:2], block: 3, budget: budget{fails: 1}},
		"no longer than maximum hold": {wishes: limited, block: 3, stranger: true},
		"as long as a cohort":         {wishes: working(engine.CohortAlone / 2), block: 3},
	}
	for _, s := range worlds {
		s.patient, s.times = true, -1
	}
	// Of one caller everything can be explored while time passes too, five times.
	worlds["one caller, renewed"] = &setup{
		wishes: []wish{{name: "a", maxHold: 50 * time.Millisecond}}, block: 3, stranger: true,
		budget: budget{losses: 1, times: 5},
	}
	return worlds
}

// large are worlds in which time passes while everything else happens: more than can be
// explored whole.
func large() map[string]*setup {
	return map[string]*setup{
		// A place lingers, and time passes: it ends, or the next caller adopts it.
		"impatience, time passes": {
			wishes: []wish{
				{name: "a", patience: engine.LingerFor}, {name: "a", patience: engine.LingerFor}, {name: "a"},
			},
			stranger: true, held: true, budget: budget{cancels: 3, times: 3},
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
		text, err := child(t, testserver.Long(10*time.Second, time.Minute), "", "")
		t.Log(text)
		if err != nil {
			t.Error(err)
		}
		return
	}
	if *only != "" {
		r, err := worlds()[*only].model().First(maxStates)
		t.Log(r, err)
		for _, f := range r.Findings {
			t.Error(f)
		}
		return
	}
	for name, s := range small() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.model().Holds(t, maxStates)
		})
	}
	for name, s := range large() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := *exploreFor
			if name != "everything" {
				d = min(d, 10*time.Second)
			}
			r, all := s.model().For(d)
			t.Logf("%v, everything: %t", r, all)
			for _, f := range r.Findings {
				t.Error(f)
			}
			s.times = -1
			s.model().Walks(t, 300, 400)
		})
	}
}

// maxStates is more than any of the small worlds has.
const maxStates = 2_000_000

// worlds are all of them.
func worlds() map[string]*setup {
	all := small()
	maps.Copy(all, large())
	return all
}

// child explores in a process of its own: all worlds for so long, or only one, with files of the
// engine replaced as the overlay says.
func child(t *testing.T, d time.Duration, overlay, world string) (string, error) {
	args := []string{
		"test", "-count=1", "-run", "^TestClient$", "-v", "-timeout", "8m", "-overlay", overlay, ".",
		"-explore.for", d.String(), "-explore.only", world,
	}
	text, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	return string(text), err
}

// mistakes are planted in the engine, each in a copy of its file. All must be found.
var mistakes = []struct{ world, name, file, right, wrong string }{
	{"hand-over", "two holders have one token", "engine/cohort.go", "\tgrant.Token++\n", ""},
	{"hand-over", "a hand-over wakes nobody", "engine/cohort.go", "\te.wake(c)\n", ""},
	{"hand-over", "the end of a hand-over leaves the gate closed", "engine/cohort.go",
		"g.cohort.hold, g.closed = nil, false", "g.cohort.hold = nil"},
	{"hand-over", "a grant promotes nobody", "engine/acquire.go", "\te.promote(h.name, g)\n\te.schedule(h)\n", "\te.schedule(h)\n"},
	{"hand-over", "a gate is never forgotten", "engine/gate.go", "\t\tdelete(e.gates, name)\n", ""},
	{"cancel", "a wake-up is lost with a cancel", "engine/acquire.go", "\te.promote(c.name, g)\n\treturn a\n", "\treturn a\n"},
	{"cancel", "a grant is dropped because the context has ended", "engine/acquire.go",
		"\tcase holding, ended:\n\t\treturn Action{Do: Yes}\n\tcase refused:\n\t\treturn Action{Do: No, Err: c.err}\n\tcase behind, head:\n\t\treturn e.giveUp",
		"\tcase behind, head:\n\t\treturn e.giveUp"},
	{"break", "a dead hold is handed over", "engine/hold.go",
		"\tfor _, g := range between {\n\t\te.endCohort(g)\n\t}\n", "\t_ = between\n"},
	{"readers", "a release is answered twice", "engine/release.go",
		"\tcase released:\n\t\treturn Action{Do: Done, Err: c.err}\n", ""},
	{"readers", "a writer shares a hold of readers", "engine/hold.go",
		"c.settings.Terms == h.settings.Terms && c.settings.MaxHold", "c.settings.MaxHold"},
	{"impatience", "a place lingers for ever", "engine/acquire.go", "\t\t\te.lingering.Set(g, e.now.Add(LingerFor))\n", ""},
	{"impatience", "the answer to a late request wakes nobody", "engine/linger.go",
		"\tif g.first != nil {\n\t\te.wake(g.first)\n\t}\n", ""},
	{"impatience", "a place is withdrawn that another has adopted", "engine/linger.go",
		"\te.lingering.Drop(g)\n\tif c.try", "\tif c.try"},
	{"two: cancel, lost answer", "a place is left in the store", "engine/acquire.go",
		"\t\t\te.withdrawPlace(c.name, g.renounce())\n\t\t\tg.told = false\n", "\t\t\tg.renounce()\n\t\t\tg.told = false\n"},
	{"two: cancel, lost answer", "an unknown outcome counts as a no", "engine/acquire.go",
		"g.place.stray, e.silence = true, err", "g.place.sent = false"},
	{"one caller, renewed", "a grant is confirmed though a request of its owner is late", "engine/acquire.go",
		"\tif c.gate.place.stray {\n\t\t// A request", "\tif false {\n\t\t// A request"},
	{"one caller, renewed", "trust is counted from the arrival of the grant", "engine/hold.go",
		"lease.Start(now, g.Since, g.Valid,", "lease.Start(now, now, g.Valid,"},
	{"break", "a grant is used though the store has told that it is gone", "engine/hold.go", "\t\t\tg.place.lost = reason\n", ""},
	{"minimum hold, impatience", "a claim is used before the store knows of its minimum hold", "engine/acquire.go",
		"t.step = g.place.lateStep", "t.step = enqueue"},

	// Of owners that are withdrawn.
	{"no queue, late withdrawals", "a store without a queue is asked again under an owner that it refused", "engine/acquire.go",
		"\t\t\tg.renounce()\n\t\t}\n\t}\n\treturn e.failed", "\t\t}\n\t}\n\treturn e.failed"},
	{"no queue, late withdrawals", "a store without a queue is asked again under an owner that is withdrawn", "engine/acquire.go",
		"be asked again under the same owner.\n\t\te.withdrawPlace(c.name, g.renounce())", "\n\t\te.withdrawPlace(c.name, g.place)"},
	{"late withdrawals", "a place is used after its withdrawal", "engine/acquire.go",
		"\t\t\te.withdrawPlace(c.name, g.renounce())\n\t\t\tg.told = false\n", "\t\t\te.withdrawPlace(c.name, g.place)\n\t\t\tg.told = false\n"},

	// Of time.
	{"impatience, lost answer", "a place lingers a tick too long", "engine/linger.go", "at <= then", "at < then"},
	{"renewed in time", "the tick at a deadline comes too late", "engine/engine.go",
		"e.deadlines.First()\n\tsooner(t, some)", "e.deadlines.First()\n\tsooner(t+1, some)"},
	{"renewed in time", "a renewal that is due is forgotten", "engine/hold.go", "e.renewals.Set(h, at)", "_ = at"},
	{"renewed in time", "a renewal is due after the deadline", "lease/lease.go",
		"m.renewAt = since.Add(m.pace.every(valid, trusted))", "m.renewAt = m.until.Add(m.pace.Every)"},
	{"renewed in time after all", "a renewal that failed is repeated too late", "lease/lease.go",
		"now.Add(max(m.until.Sub(now)/6, minRetry))", "m.until"},
	{"no longer than maximum hold", "a deadline that has come is not over", "engine/engine.go",
		"ok && at <= e.now; h, at, ok", "ok && at < e.now; h, at, ok"},
	{"no longer than maximum hold", "the maximum hold ends too late", "engine/hold.go",
		"h.taken.Add(most), most > 0", "h.taken.Add(2*most), most > 0"},
	{"as long as a cohort", "a hold is handed over when its time is over", "engine/cohort.go",
		" || e.now >= g.cohort.over.At()", ""},
}

var promise = regexp.MustCompile(`P[0-9]+: `)

// TestMistakes: each mistake is found.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(filepath.Join("..", m.file))
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
			wrong := filepath.Join(dir, "wrong.go")
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
			said, err := child(t, 0, overlay, m.world)
			if err == nil || !promise.MatchString(said) || strings.Contains(said, "[build failed]") {
				t.Errorf("not found: %v\n%s", err, said)
			}
		})
	}
}
