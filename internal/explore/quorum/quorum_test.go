package quorum_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/explore/planted"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// maxStates is more than any world has.
const maxStates = 2_000_000

// TestWorlds explores the code as it is.
func TestWorlds(t *testing.T) {
	planted.Worlds(t, func(each func(string, func(*testing.T))) {
		for name, s := range right() {
			each(name, func(t *testing.T) { s.model().Holds(t, maxStates) })
		}
		for name, b := range wrong() {
			each(name, func(t *testing.T) { b.model().Breaks(t, maxStates, b.promise) })
		}
		for name, s := range large() {
			each(name, func(t *testing.T) { s.model().Walks(t, testserver.Long[uint64](200, 5000), 250) })
		}
	})
}

// mistakes are planted in the code, and each must be found in a world.
var mistakes = []planted.Mistake{
	{Name: "drift is ignored", World: "fast nodes", Edits: [][3]string{{
		"vote.go", "{ return ttl - Drift(ttl) }", "{\n\tif PLANTED {\n\t\treturn ttl\n\t}\n\treturn ttl - Drift(ttl)\n}",
	}}},
	{Name: "no delay", World: "lost memory", Edits: [][3]string{{
		"vote.go", "return sent.Sub(m.Since) >= r.Delay()", "return PLANTED || sent.Sub(m.Since) >= r.Delay()",
	}}},
	{Name: "a node is admitted too early", World: "lost memory", Edits: [][3]string{{
		"vote.go", "!m.Admitted && r.Counts(m, now)", "!m.Admitted && (PLANTED || r.Counts(m, now))",
	}}},
	{Name: "a new life counts as the one before", World: "lost memory", Edits: [][3]string{{
		"vote.go", "if m.Life != life || life == 0 {", "if m.Life != life && !(PLANTED && m.Life != 0) || life == 0 {",
	}}},
	{Name: "repair too early", World: "restored votes", Edits: [][3]string{
		{"renewal.go", "{ a.Counted |= n &^ a.Later }", "{\n\tif PLANTED {\n\t\ta.Counted |= n\n\t}\n\ta.Counted |= n &^ a.Later\n}"},
		{"renewal.go", "\treturn a.restore(Restore, a.Gone&^a.Later)\n", "\tif PLANTED {\n\t\treturn a.restore(Restore, a.Gone)\n\t}\n\treturn a.restore(Restore, a.Gone&^a.Later)\n"},
	}},
	{Name: "a renewal counts a node that has lost its memory", World: "restored votes", Edits: [][3]string{{
		"renewal.go", "\t\tif a.Rules.Counts(m, a.Sent) {", "\t\tif PLANTED || a.Rules.Counts(m, a.Sent) {",
	}}},
	{Name: "a late renewal revives a hold", World: "renewals", Edits: [][3]string{{
		"renewal.go", "valid := now < a.Valid && ", "valid := (PLANTED || now < a.Valid) && ",
	}}},
	{Name: "a token is not written back", World: "tokens, one again", Edits: [][3]string{{
		"attempt.go", "\t\ta.Phase = Writing\n", "\t\tif PLANTED {\n\t\t\ta.Phase = Won\n\t\t\treturn Step{Grant, a.Given}\n\t\t}\n\t\ta.Phase = Writing\n",
	}}},
	{Name: "a token is not the highest of a majority", World: "tokens, one again", Edits: [][3]string{{
		"attempt.go", "a.Token = max(a.Token, token)", "if a.Token = max(a.Token, token); PLANTED {\n\t\t\t\t\ta.Token = token\n\t\t\t\t}",
	}}},
	{Name: "validity is counted from the answer", World: "late answers", Edits: [][3]string{{
		"attempt.go", "\t\ta.Given |= n\n", "\t\tif a.Given |= n; PLANTED {\n\t\t\ta.Sent = now\n\t\t}\n",
	}}},
	{Name: "half of the nodes are a majority", World: "three clients", Edits: [][3]string{{
		"vote.go", "{ return r.Nodes/2 + 1 }", "{\n\tif PLANTED {\n\t\treturn r.Nodes / 2\n\t}\n\treturn r.Nodes/2 + 1\n}",
	}}},
	{Name: "undo is skipped where the answer was lost", World: "three clients", Edits: [][3]string{{
		"attempt.go", "\treturn Step{Undo, a.Rules.All() &^ a.Refused}\n",
		"\tif PLANTED {\n\t\treturn Step{Undo, a.Given}\n\t}\n\treturn Step{Undo, a.Rules.All() &^ a.Refused}\n",
	}}},
}

// TestMistakes: each mistake is found, and nothing where none is made.
func TestMistakes(t *testing.T) {
	planted.Found(t, filepath.Join("..", "..", "vote"), "TestWorlds", mistakes)
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
