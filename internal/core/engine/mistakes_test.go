//go:build soak

package engine_test

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/explore/planted"
)

// mistakes are planted in the engine. Each breaks a promise, and must be found in a world.
var mistakes = []planted.Mistake{
	{Name: "P1: trust is counted from the arrival of the grant", World: "one caller, renewed", Edits: [][3]string{{
		"hold.go", "lease.Start(e.now, g.Since, ", "lease.Start(e.now, map[bool]driver.Instant{true: e.now, false: g.Since}[PLANTED], ",
	}}},
	{Name: "P1: a writer shares a hold of readers", World: "readers", Edits: [][3]string{{
		"hold.go", "c.settings.sameTerms(h.settings) && c.settings.MaxHold", "(PLANTED || c.settings.sameTerms(h.settings)) && c.settings.MaxHold",
	}}},
	{Name: "P1: an owner is used after its withdrawal", World: "no queue, late withdrawals", Edits: [][3]string{{
		"acquire.go", "be asked again under the same owner.\n\t\te.withdrawPlace(c.name, g.renounce())",
		"be asked again under the same owner.\n\t\te.withdrawPlace(c.name, g.place)\n\t\tif !PLANTED {\n\t\t\tg.renounce()\n\t\t}",
	}}},
	{Name: "P2: the tick at a deadline comes too late", World: "renewed in time", Edits: [][3]string{{
		"engine.go", "e.deadlines.First()\n\tsooner(t, some)", "e.deadlines.First()\n\tif PLANTED {\n\t\tt++\n\t}\n\tsooner(t, some)",
	}}},
	{Name: "P2: a renewal that is due is forgotten", World: "renewed in time", Edits: [][3]string{{
		"hold.go", "\t\te.renewals.Set(h, at)\n", "\t\tif !PLANTED {\n\t\t\te.renewals.Set(h, at)\n\t\t}\n",
	}}},
	{Name: "P2: a grant is used though the store has told that it is gone", World: "break", Edits: [][3]string{{
		"hold.go", "\t\t\tg.place.lost = reason\n", "\t\t\tif !PLANTED {\n\t\t\t\tg.place.lost = reason\n\t\t\t}\n",
	}}},
	{Name: "P2: the maximum hold ends too late", World: "no longer than maximum hold", Edits: [][3]string{{
		"hold.go", "h.taken.Add(most), most > 0", "h.taken.Add(map[bool]time.Duration{true: 2 * most, false: most}[PLANTED]), most > 0",
	}}},
	{Name: "P3: two holders have one token", World: "hand-over", Edits: [][3]string{{
		"cohort.go", "\tgrant.Token++\n", "\tif !PLANTED {\n\t\tgrant.Token++\n\t}\n",
	}}},
	{Name: "P3: a grant is confirmed though a request of its owner is late", World: "one caller, renewed", Edits: [][3]string{{
		"acquire.go", "\tif c.gate.place.stray {\n", "\tif c.gate.place.stray && !PLANTED {\n",
	}}},
	{Name: "P4: a release is answered twice", World: "readers", Edits: [][3]string{{
		"release.go", "\tcase released:\n\t\treturn Action{Do: Done, Err: c.err}\n",
		"\tcase released:\n\t\tif !PLANTED {\n\t\t\treturn Action{Do: Done, Err: c.err}\n\t\t}\n",
	}}},
	{Name: "P5: a claim is used before the store knows of its minimum hold", World: "minimum hold, callers give up", Edits: [][3]string{{
		"acquire.go", "grant.Claim && ", "!PLANTED && grant.Claim && ",
	}}},
	{Name: "P6: a place is left in the store", World: "two: cancel, lost answer", Edits: [][3]string{{
		"acquire.go", "\t\t\te.withdrawPlace(c.name, g.renounce())\n\t\t\tg.told = false\n",
		"\t\t\tif p := g.renounce(); !PLANTED {\n\t\t\t\te.withdrawPlace(c.name, p)\n\t\t\t}\n\t\t\tg.told = false\n",
	}}},
	{Name: "P6: a grant is dropped because the context has ended", World: "cancel", Edits: [][3]string{{
		"acquire.go", "\tcase holding, ended:\n\t\treturn Action{Do: Yes}\n\tcase refused:\n\t\treturn Action{Do: No, Err: c.err}\n\tcase behind, head:\n",
		"\tcase holding, ended:\n\t\tif PLANTED {\n\t\t\treturn Action{Do: No}\n\t\t}\n\t\treturn Action{Do: Yes}\n\tcase refused:\n\t\treturn Action{Do: No, Err: c.err}\n\tcase behind, head:\n",
	}}},
	{Name: "P7: a wake-up is lost with a cancel", World: "cancel", Edits: [][3]string{{
		"acquire.go", "\te.promote(c.name, g)\n\treturn a\n", "\tif !PLANTED {\n\t\te.promote(c.name, g)\n\t}\n\treturn a\n",
	}}},
	{Name: "P7: a dead hold is handed over", World: "break", Edits: [][3]string{{
		"hold.go", "range between {\n\t\te.endCohort(g)\n", "range between {\n\t\tif PLANTED {\n\t\t\tbreak\n\t\t}\n\t\te.endCohort(g)\n",
	}}},
	{Name: "P8: a hold is handed over when its time is over", World: "as long as a cohort", Edits: [][3]string{{
		"cohort.go", " || e.now >= g.cohort.over.At()", " || !PLANTED && e.now >= g.cohort.over.At()",
	}}},
	{Name: "P9: a gate is never forgotten", World: "hand-over", Edits: [][3]string{{
		"gate.go", "\t\tdelete(e.gates, name)\n", "\t\tif !PLANTED {\n\t\t\tdelete(e.gates, name)\n\t\t}\n",
	}}},
}

// TestMistakes: each mistake is found, and nothing where none is made.
func TestMistakes(t *testing.T) { planted.Found(t, ".", "TestClient", mistakes) }

// TestForgettingMistakes: without each part of the rule a store that forgets makes two holders.
func TestForgettingMistakes(t *testing.T) {
	const world, waits = "a replica takes over", "a replica takes over while one waits"
	t.Run("life", func(t *testing.T) {
		planted.Found(t, "../../life", "TestClient", []planted.Mistake{
			{Name: "P1: another life is taken for the same", World: world, Edits: [][3]string{{
				"life.go", "m.Life == life &&", "(PLANTED || m.Life == life) &&",
			}}},
			{Name: "P1: the wait is shorter than the TTL", World: world, Edits: [][3]string{{
				"life.go", "return r.MaxTTL + Drift(r.MaxTTL) + r.Lag", "if PLANTED {\n\t\treturn r.MaxTTL / 2\n\t}\n\treturn r.MaxTTL + Drift(r.MaxTTL) + r.Lag",
			}}},
			{Name: "P1: a life that begins keeps when the one before opened", World: world, Edits: [][3]string{{
				"life.go", "\t\tm.Opens = since.Add(wait)\n", "\t\tif !PLANTED || m.Wait == 0 {\n\t\t\tm.Opens = since.Add(wait)\n\t\t}\n",
			}}},
		})
	})
	t.Run("record", func(t *testing.T) {
		planted.Found(t, "../../record", "TestClient", []planted.Mistake{
			{Name: "P1: a request is granted", World: world, Edits: [][3]string{{
				"record.go", "if now >= rules.Opens && r.admits(req)", "if (PLANTED || now >= rules.Opens) && r.admits(req)",
			}}},
			{Name: "P1: a waiter is granted", World: waits, Edits: [][3]string{{
				"record.go", "case now >= rules.Opens && r.admits(head", "case (PLANTED || now >= rules.Opens) && r.admits(head",
			}}},
		})
	})
}
