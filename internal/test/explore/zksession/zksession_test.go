package zksession_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/explore/planted"
)

// maxStates is more than any world has.
const maxStates = 4_000_000

// TestWorlds explores the code as it is.
func TestWorlds(t *testing.T) {
	planted.Worlds(t, func(each func(string, func(*testing.T))) {
		for name, s := range right() {
			each(name, func(t *testing.T) { s.model().Holds(t, maxStates) })
		}
		for name, b := range wrong() {
			each(name, func(t *testing.T) { b.model().Breaks(t, maxStates, b.promise) })
		}
	})
}

// mistakes are planted in the code, and each must be found in a world.
var mistakes = []planted.Mistake{
	{Name: "trust counts from pings", World: "pings", Edits: [][3]string{{
		"zksession.go", "|| write {", "|| write || PLANTED {",
	}}},
	{Name: "a withdrawal is done when a new connection finds nothing", World: "withdrawal by reading", Edits: [][3]string{{
		"zksession.go", "case !a.Written || !a.Read:", "case !a.Written && !PLANTED || !a.Read:",
	}}},
	{Name: "nothing is left of a session that a server says is over", World: "withdrawal", Edits: [][3]string{{
		"zksession.go", "\t\treturn Elsewhere", "\t\tif PLANTED {\n\t\t\treturn Done\n\t\t}\n\t\treturn Elsewhere",
	}}},
	{Name: "an attempt that has taken effect is left", World: "withdrawal", Edits: [][3]string{{
		"zksession.go", "\t\treturn Delete", "\t\tif PLANTED {\n\t\t\treturn Done\n\t\t}\n\t\treturn Delete",
	}}},
}

// TestMistakes: each mistake is found, and nothing where none is made.
func TestMistakes(t *testing.T) {
	planted.Found(t, filepath.Join("..", "..", "..", "zksession"), "TestWorlds", mistakes)
}
