package quorum_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// The race detector would make an exploration ten times as slow and finds nothing in one goroutine. So a
// program that is built without it explores, the same for the code as it is and for mistakes that are
// planted in it.
var (
	explores = flag.Bool("explores", false, "explore in this process")
	only     = flag.String("only", "", "explore this world")
)

// maxStates is more than any world has.
const maxStates = 2_000_000

// TestWorlds explores the code as it is.
func TestWorlds(t *testing.T) {
	if !*explores {
		said, err := run(t, build(t, ""), "", "")
		t.Log(said)
		if err != nil {
			t.Error(err)
		}
		return
	}
	each := func(name string, f func(*testing.T)) {
		if *only == "" || *only == name {
			t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
		}
	}
	for name, s := range right() {
		each(name, func(t *testing.T) { s.model().Holds(t, maxStates) })
	}
	for name, b := range wrong() {
		each(name, func(t *testing.T) { b.model().Breaks(t, maxStates, b.promise) })
	}
	for name, s := range large() {
		each(name, func(t *testing.T) { s.model().Walks(t, testserver.Long[uint64](200, 5000), 250) })
	}
}

// run explores all worlds, or one of them with one mistake, in a process of its own.
func run(t *testing.T, program, world, mistake string) (string, error) {
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^TestWorlds$", "-test.timeout", "8m", "-explores", "-only", world)
	c.Env = append(os.Environ(), "GOGC=300", "VOTE_MISTAKE="+mistake)
	said, err := c.CombinedOutput()
	return string(said), err
}

// build builds the program that explores, with files of package vote replaced as the overlay says.
func build(t *testing.T, overlay string) string {
	program := filepath.Join(t.TempDir(), "explore.test")
	said, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-race=false", "-ldflags=-s -w", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// edit is a change to a file of package vote. PLANTED stands for whether the mistake is made.
type edit struct{ file, right, wrong string }

// mistakes are planted in the code, and each must be found in a world.
var mistakes = []struct {
	name, world string
	edits       []edit
}{
	{"drift is ignored", "fast nodes", []edit{{
		"vote.go", "{ return ttl - Drift(ttl) }", "{\n\tif PLANTED {\n\t\treturn ttl\n\t}\n\treturn ttl - Drift(ttl)\n}",
	}}},
	{"no delay", "lost memory", []edit{{
		"vote.go", "return sent.Sub(m.Since) >= r.Delay()", "return PLANTED || sent.Sub(m.Since) >= r.Delay()",
	}}},
	{"a node is admitted too early", "lost memory", []edit{{
		"vote.go", "!m.Admitted && r.Counts(m, now)", "!m.Admitted && (PLANTED || r.Counts(m, now))",
	}}},
	{"a new life counts as the one before", "lost memory", []edit{{
		"vote.go", "if m.Life != life || life == 0 {", "if m.Life != life && !(PLANTED && m.Life != 0) || life == 0 {",
	}}},
	{"repair too early", "restored votes", []edit{
		{"renewal.go", "{ a.Counted |= n &^ a.Later }", "{\n\tif PLANTED {\n\t\ta.Counted |= n\n\t}\n\ta.Counted |= n &^ a.Later\n}"},
		{"renewal.go", "\treturn a.restore(Restore, a.Gone&^a.Later)\n", "\tif PLANTED {\n\t\treturn a.restore(Restore, a.Gone)\n\t}\n\treturn a.restore(Restore, a.Gone&^a.Later)\n"},
	}},
	{"a renewal counts a node that has lost its memory", "restored votes", []edit{{
		"renewal.go", "\t\tif a.Rules.Counts(m, a.Sent) {", "\t\tif PLANTED || a.Rules.Counts(m, a.Sent) {",
	}}},
	{"a late renewal revives a hold", "renewals", []edit{{
		"renewal.go", "valid := now < a.Valid && ", "valid := (PLANTED || now < a.Valid) && ",
	}}},
	{"a token is not written back", "tokens, one again", []edit{{
		"attempt.go", "\t\ta.Phase = Writing\n", "\t\tif PLANTED {\n\t\t\ta.Phase = Won\n\t\t\treturn Step{Grant, a.Given}\n\t\t}\n\t\ta.Phase = Writing\n",
	}}},
	{"a token is not the highest of a majority", "tokens, one again", []edit{{
		"attempt.go", "a.Token = max(a.Token, token)", "if a.Token = max(a.Token, token); PLANTED {\n\t\t\t\t\ta.Token = token\n\t\t\t\t}",
	}}},
	{"validity is counted from the answer", "late answers", []edit{{
		"attempt.go", "\t\ta.Given |= n\n", "\t\tif a.Given |= n; PLANTED {\n\t\t\ta.Sent = now\n\t\t}\n",
	}}},
	{"half of the nodes are a majority", "three clients", []edit{{
		"vote.go", "{ return r.Nodes/2 + 1 }", "{\n\tif PLANTED {\n\t\treturn r.Nodes / 2\n\t}\n\treturn r.Nodes/2 + 1\n}",
	}}},
	{"undo is skipped where the answer was lost", "three clients", []edit{{
		"attempt.go", "\treturn Step{Undo, a.Rules.All() &^ a.Refused}\n",
		"\tif PLANTED {\n\t\treturn Step{Undo, a.Given}\n\t}\n\treturn Step{Undo, a.Rules.All() &^ a.Refused}\n",
	}}},
}

// planted is added to package vote. The program that has all mistakes makes one at a time.
const planted = `package vote

import "os"

var mistake = os.Getenv("VOTE_MISTAKE")
`

// plant returns an overlay that has all mistakes.
func plant(t *testing.T) string {
	vote, err := filepath.Abs(filepath.Join("..", "..", "vote"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"planted.go": planted}
	for _, m := range mistakes {
		for _, e := range m.edits {
			if files[e.file] == "" {
				source, err := os.ReadFile(filepath.Join(vote, e.file))
				if err != nil {
					t.Fatal(err)
				}
				files[e.file] = string(source)
			}
			if n := strings.Count(files[e.file], e.right); n != 1 {
				t.Fatalf("%s: %s has %q %d times", m.name, e.file, e.right, n)
			}
			wrong := strings.ReplaceAll(e.wrong, "PLANTED", "mistake == \""+m.name+"\"")
			files[e.file] = strings.Replace(files[e.file], e.right, wrong, 1)
		}
	}
	dir, replace := t.TempDir(), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		replace[filepath.Join(vote, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

var promise = regexp.MustCompile(`P[0-9]+: .*, after [0-9]+ steps`)

// TestMistakes: each mistake is found, and nothing where none is made.
func TestMistakes(t *testing.T) {
	program := build(t, plant(t))
	if said, err := run(t, program, "three clients", "none"); err != nil {
		t.Errorf("found without a mistake: %v\n%s", err, said)
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			said, err := run(t, program, m.world, m.name)
			if err == nil || !promise.MatchString(said) {
				t.Errorf("not found: %v\n%s", err, said)
			}
			t.Log(said)
		})
	}
}

// TestHoldOutlivesAllMemory: a hold that is renewed outlives the restart of all nodes without their memory,
// if the delay of each is over before the next one restarts.
func TestHoldOutlivesAllMemory(t *testing.T) {
	s := &setup{clients: 1, rules: losesTokens, budget: budget{attempts: 1, renewals: 100, forgets: 2 * nodes}}
	w := s.model().Start
	all := func(what string) {
		for n := range nodes {
			w = w.play(named("node %[2]d executes the %[1]s of client 0, and answers", what, n))
		}
	}
	w = w.play("client 0 asks all nodes")
	all(kinds[ask])
	for round := range 2 * nodes {
		n := round % nodes
		w = w.play(named("node %d restarts without its memory", n))
		for i := range 1 + int(w.rules.Delay()/tick) {
			if i > 0 {
				w = w.play("a tick passes")
			}
			if !w.believes(0) {
				t.Fatalf("round %d: the hold is lost: %v", round, w)
			}
			w = w.play("client 0 asks all nodes to renew")
			all(kinds[renew])
			if i == 0 {
				w = w.play(named("node %d executes the request to restore of client 0, and answers", n), named("node %d executes the token of client 0, and answers", n))
			}
		}
		w = w.play("a tick passes", named("client 0 admits node %d", n))
		if !w.nodes[n].admitted || w.nodes[n].holder != w.client[0].owner {
			t.Fatalf("round %d: node %d has no vote: %v", round, n, w)
		}
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}
