package sqldialect

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
)

// How real databases answer is tested in packages internal/test/integration/dbtest and internal/test/integration/fencetest.

// script answers each statement with the next error.
type script struct {
	Tx
	answers  []error
	executed []string
}

func (s *script) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.executed = append(s.executed, query)
	err := s.answers[0]
	s.answers = s.answers[1:]
	return nil, err
}

func TestCheckTx(t *testing.T) {
	outside := errors.New("no savepoint outside of a transaction")
	nested := errors.New("cannot start a transaction within a transaction")
	for name, c := range map[string]struct {
		dialect Dialect
		answers []error
		want    string // "": no error
		wraps   error
	}{
		"in a transaction":                {MySQL, []error{nil, nil}, "", nil},
		"the savepoint is refused":        {MySQL, []error{outside}, "has none", outside},
		"the savepoint is gone":           {MySQL, []error{nil, outside}, "has none", outside},
		"SQLite, in a transaction":        {SQLite, []error{nested}, "", nil},
		"SQLite, without one":             {SQLite, []error{nil}, "*sqldialect.script has none", nil},
		"SQLite, a connection that ended": {SQLite, []error{sql.ErrConnDone}, "cannot be used", sql.ErrConnDone},
	} {
		s := &script{answers: c.answers}
		err := c.dialect.CheckTx(t.Context(), s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.wraps != nil && !errors.Is(err, c.wraps) {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.answers) > 0 {
			t.Errorf("%s: executed only %q", name, s.executed)
		}
		if slices.ContainsFunc(s.executed, func(q string) bool { return strings.HasPrefix(q, "SAVEPOINT") }) == (c.dialect == SQLite) {
			t.Errorf("%s: executed %q", name, s.executed)
		}
	}
}

// TestNoStatement: a pool and a *sql.Tx are known without a statement, also inside of
// something else.
func TestNoStatement(t *testing.T) {
	for _, d := range []Dialect{MySQL, SQLite} {
		for _, db := range []Tx{new(sql.DB), struct{ *sql.DB }{new(sql.DB)}} {
			if err := d.CheckTx(t.Context(), db); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
				t.Errorf("%T: %v", db, err)
			}
		}
		for _, tx := range []Tx{new(sql.Tx), struct{ *sql.Tx }{new(sql.Tx)}} {
			if err := d.CheckTx(t.Context(), tx); err != nil {
				t.Errorf("%T: %v", tx, err)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	for d, want := range map[Dialect]string{0: "unknown dialect", Postgres: "postgres", MySQL: "mysql", SQLite: "sqlite", 4: "unknown dialect"} {
		if d.String() != want || (d.Check() == nil) != (want != "unknown dialect") {
			t.Errorf("dialect %d is %q: %v", uint8(d), d, d.Check())
		}
	}
}
