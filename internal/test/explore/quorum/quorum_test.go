package quorum_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/explore/planted"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// maxStates is more than any world has.
const maxStates = 2_000_000

// TestWorlds explores the code as it is.
func TestWorlds(t *testing.T) {
	planted.Worlds(t, func(each func(string, func(*testing.T))) {
		for name, s := range right() {
			each(name, func(t *testing.T) { s.model().Holds(t, maxStates) })
		}
		each("withdrawals", func(t *testing.T) { withdrawals().Holds(t, maxStates) })
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
		"vote.go", "{ return ttl - life.Drift(ttl) }", "{\n\tif PLANTED {\n\t\treturn ttl\n\t}\n\treturn ttl - life.Drift(ttl)\n}",
	}}},
	{Name: "a vote counts before it is restored", World: "restored votes", Edits: [][3]string{{
		"attempt.go", "\tif r.Answer == Broken {", "\tif PLANTED && r.Answer == Refused {\n\t\ta.Given |= Of(node)\n\t}\n\tif r.Answer == Broken {",
	}}},
	{Name: "a late renewal revives a hold", World: "renewals", Edits: [][3]string{{
		"attempt.go", "&& now < a.Valid &&", "&& (PLANTED || now < a.Valid) &&",
	}}},
	{Name: "a token is not written back", World: "tokens, one again", Edits: [][3]string{{
		"attempt.go", "\t\ta.Phase = Writing\n", "\t\tif a.Phase = Writing; PLANTED {\n\t\t\ta.Written = a.Counted\n\t\t}\n",
	}}},
	{Name: "a token is not the highest of a majority", World: "tokens, one again", Edits: [][3]string{{
		"attempt.go", "a.Token = max(a.Token, token)", "if a.Token = max(a.Token, token); PLANTED {\n\t\t\t\t\ta.Token = token\n\t\t\t\t}",
	}}},
	{Name: "validity is counted from the answer", World: "late answers", Edits: [][3]string{{
		"attempt.go", "\tif a.Rules.Tokens {\n", "\tif PLANTED {\n\t\ta.Sent = now\n\t}\n\tif a.Rules.Tokens {\n",
	}}},
	{Name: "half of the nodes are a majority", World: "three clients", Edits: [][3]string{{
		"vote.go", "{ return r.Nodes/2 + 1 }", "{\n\tif PLANTED {\n\t\treturn r.Nodes / 2\n\t}\n\treturn r.Nodes/2 + 1\n}",
	}}},
	{Name: "a withdrawal is skipped where the answer was lost", World: "withdrawals", Edits: [][3]string{{
		"ballot.go", "(b.Held || b.Stray)", "(b.Held || b.Stray && !PLANTED)",
	}}},
	{Name: "a refusal speaks for earlier requests", World: "withdrawals", Edits: [][3]string{{
		"ballot.go", "b.Stray || a == Lost", "b.Stray && !(PLANTED && a == Refused) || a == Lost",
	}}},
	{Name: "a withdrawal does not wait for the answer", World: "withdrawals", Edits: [][3]string{{
		"ballot.go", "return !b.Asked && (b.Held", "return PLANTED && b.Asked || !b.Asked && (b.Held",
	}}},
}

// forgetting are mistakes in the rule that nodes keep which may forget. The engine's worlds have more of them.
var forgetting = []planted.Mistake{
	{Name: "a node that has forgotten grants too early", World: "lost memory", Edits: [][3]string{{
		"life.go", "return r.MaxTTL + Drift(r.MaxTTL) + r.Lag", "if PLANTED {\n\t\treturn r.MaxTTL / 2\n\t}\n\treturn r.MaxTTL + Drift(r.MaxTTL) + r.Lag",
	}}},
}

// TestMistakes: each mistake is found, and nothing where none is made.
func TestMistakes(t *testing.T) {
	for folder, mistakes := range map[string][]planted.Mistake{"vote": mistakes, "life": forgetting} {
		t.Run(folder, func(t *testing.T) {
			planted.Found(t, filepath.Join("..", "..", "..", folder), "TestWorlds", mistakes)
		})
	}
}
