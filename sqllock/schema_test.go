package sqllock

import (
	"reflect"
	"strings"
	"testing"
)

func TestCheckPrefix(t *testing.T) {
	for _, prefix := range []string{"holdfast", "a", "a_1", "app.locks", strings.Repeat("a", MaxPrefix)} {
		if err := CheckPrefix(prefix); err != nil {
			t.Error(err)
		}
	}
	for _, prefix := range []string{"", "A", "1a", "_a", "a b", "a;", "a.", ".a", "a.b.c", "a'", "ä", strings.Repeat("a", MaxPrefix+1)} {
		if CheckPrefix(prefix) == nil {
			t.Errorf("prefix %q was accepted", prefix)
		}
	}
}

// TestBound: arguments that are used twice, or not at all, reach their placeholders.
func TestBound(t *testing.T) {
	const text = "{max}($2, $1) $10 $2 {locks}"
	args := []any{"1", "2", 3, 4, 5, 6, 7, 8, 9, "10"}
	for dialect, want := range map[Dialect]string{
		Postgres: "greatest($2, $1) $10 $2 p_locks", MySQL: "GREATEST(x'32', x'31') x'3130' x'32' p_locks", SQLite: "max($2, $1) $10 $2 p_locks",
	} {
		s := newStatements(dialect, "p", false)
		if q := s.bound(text, args...); q.Text != want || (q.Args == nil) != (dialect == MySQL) {
			t.Errorf("%v: %q, want %q; the arguments are %v", dialect, q.Text, want, q.Args)
		}
		if q := s.bound("'$.m' 1$", args...); q.Text != "'$.m' 1$" || q.Args != nil {
			t.Errorf("%v: %q with arguments %v", dialect, q.Text, q.Args)
		}
	}
}

func TestLists(t *testing.T) {
	s := newStatements(SQLite, "p", false)
	q := s.list("{names};{owners}", []string{"a", "b", "c"}, []string{"x", "y", "z"})
	if q.Text != "$1, $2, $3, $4;$5, $6, $7, $8" || !reflect.DeepEqual(q.Args, []any{"a", "b", "c", "c", "x", "y", "z", "z"}) {
		t.Errorf("%q, %v", q.Text, q.Args)
	}
}
