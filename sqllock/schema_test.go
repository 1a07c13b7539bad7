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

// TestQuery: arguments that are used twice, and the host's time, reach their
// placeholders.
func TestQuery(t *testing.T) {
	const text = "{max}($2, $1) $10 $2 {locks}"
	args := []any{"1", "2", 3, 4, 5, 6, 7, 8, 9, "10"}
	for dialect, want := range map[Dialect]string{
		Postgres: "greatest($2, $1) $10 $2 p_locks", MySQL: "GREATEST(?, ?) ? ? p_locks", SQLite: "max(?, ?) ? ? p_locks",
	} {
		q := dialect.query(text, "p")
		if q.text != want {
			t.Errorf("%v: %q, want %q", dialect, q.text, want)
		}
		s := q.bound(args...)
		text, bound := s.Text, s.Args
		switch dialect {
		case SQLite:
			args := []any{"2", "1", "10", "2"}
			if !reflect.DeepEqual(bound, args) {
				t.Errorf("%v: arguments %v, want %v", dialect, bound, args)
			}
		case MySQL:
			if bound != nil || text != "GREATEST(x'32', x'31') x'3130' x'32' p_locks" {
				t.Errorf("%v: arguments %v beside %s", dialect, bound, text)
			}
		}
	}
	q := SQLite.query("{now} $1 {now}", "p")
	bound := q.bound("x").Args
	if bound[0] != bound[2] || bound[1] != "x" || bound[0].(int64) < 1e15 {
		t.Errorf("the host's time is bound as %v", bound)
	}
}

func TestLists(t *testing.T) {
	s := newStatements(SQLite, "p", false)
	q := s.list("{names};{owners}", []string{"a", "b", "c"}, []string{"x", "y", "z"})
	if q.Text != "?, ?, ?, ?;?, ?, ?, ?" || !reflect.DeepEqual(q.Args, []any{"a", "b", "c", "c", "x", "y", "z", "z"}) {
		t.Errorf("%q, %v", q.Text, q.Args)
	}
}
