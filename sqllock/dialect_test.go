package sqllock

import (
	"strings"
	"testing"
)

// TestLimits: no argument alone is a LIMIT in SQLite, which would compile the statement at each run.
func TestLimits(t *testing.T) {
	for dialect, want := range map[Dialect]string{Postgres: "LIMIT $", MySQL: "LIMIT ?", SQLite: "LIMIT 0 + ?"} {
		s := newStatements(dialect, "holdfast", nil)
		for _, q := range []*query{&s.read, &s.readCounts, &s.forlorn, &s.used, &s.old} {
			if !strings.Contains(q.text, want) {
				t.Errorf("%v: %q is not in %s", dialect, want, q.text)
			}
		}
	}
}
