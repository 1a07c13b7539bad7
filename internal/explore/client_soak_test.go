//go:build soak

package explore_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
	{"two: cancel, lost answer", "a place is left in the store", "engine/acquire.go",
		"\t\t\te.withdrawPlace(c.name, g.renounce())\n\t\t\tg.told = false\n", "\t\t\tg.renounce()\n\t\t\tg.told = false\n"},
	{"two: cancel, lost answer", "an unknown outcome counts as a no", "engine/acquire.go",
		"g.place.stray, e.silence = true, err", "g.place.sent = false"},
	{"one caller, renewed", "a grant is confirmed though a request of its owner is late", "engine/acquire.go",
		"\tif c.gate.place.stray {\n\t\t// An earlier", "\tif false {\n\t\t// An earlier"},
	{"one caller, renewed", "trust is counted from the arrival of the grant", "engine/hold.go",
		"lease.Start(now, g.Since, g.Valid,", "lease.Start(now, now, g.Valid,"},
	{"break", "a grant is used though the store has told that it is gone", "engine/hold.go", "\t\t\tg.place.lost = reason\n", ""},
	{"minimum hold, callers give up", "a claim is used before the store knows of its minimum hold", "engine/acquire.go",
		"grant.Claim && ", "false && "},

	// Of owners that are withdrawn.
	{"no queue, late withdrawals", "a store without a queue is asked again under an owner that it refused", "engine/acquire.go",
		"\t\t\tg.renounce()\n\t\t}\n\t}\n\treturn e.failed", "\t\t}\n\t}\n\treturn e.failed"},
	{"no queue, late withdrawals", "a store without a queue is asked again under an owner that is withdrawn", "engine/acquire.go",
		"be asked again under the same owner.\n\t\te.withdrawPlace(c.name, g.renounce())", "\n\t\te.withdrawPlace(c.name, g.place)"},
	{"late withdrawals", "a place is used after its withdrawal", "engine/acquire.go",
		"\t\t\te.withdrawPlace(c.name, g.renounce())\n\t\t\tg.told = false\n", "\t\t\te.withdrawPlace(c.name, g.place)\n\t\t\tg.told = false\n"},

	// Of time.
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
