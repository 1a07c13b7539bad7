package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/sqldialect"
)

// How real databases answer is tested in packages internal/test/integration/dbtest and internal/test/integration/fencetest.

// script answers each statement with the next error.
type script struct {
	sqldialect.Tx
	answers  []error
	executed []string
}

func (s *script) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.executed = append(s.executed, query)
	err := s.answers[0]
	s.answers = s.answers[1:]
	return nil, err
}

func TestCheck(t *testing.T) {
	outside := errors.New("no savepoint outside of a transaction")
	nested := errors.New("cannot start a transaction within a transaction")
	for name, c := range map[string]struct {
		dialect sqldialect.Dialect
		answers []error
		want    string // "": no error
		wraps   error
	}{
		"in a transaction":                {sqldialect.MySQL, []error{nil, nil}, "", nil},
		"the savepoint is refused":        {sqldialect.MySQL, []error{outside}, "has none", outside},
		"the savepoint is gone":           {sqldialect.MySQL, []error{nil, outside}, "has none", outside},
		"SQLite, in a transaction":        {sqldialect.SQLite, []error{nested}, "", nil},
		"SQLite, without one":             {sqldialect.SQLite, []error{nil}, "*sqltx.script has none", nil},
		"SQLite, a connection that ended": {sqldialect.SQLite, []error{sql.ErrConnDone}, "cannot be used", sql.ErrConnDone},
	} {
		s := &script{answers: c.answers}
		err := Check(t.Context(), c.dialect, s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.wraps != nil && !errors.Is(err, c.wraps) {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.answers) > 0 {
			t.Errorf("%s: executed only %q", name, s.executed)
		}
		if slices.ContainsFunc(s.executed, func(q string) bool { return strings.HasPrefix(q, "SAVEPOINT") }) == (c.dialect == sqldialect.SQLite) {
			t.Errorf("%s: executed %q", name, s.executed)
		}
	}
}

// TestNoStatement: a pool and a *sql.Tx are known without a statement, also inside of
// something else.
func TestNoStatement(t *testing.T) {
	for _, d := range []sqldialect.Dialect{sqldialect.MySQL, sqldialect.SQLite} {
		for _, db := range []sqldialect.Tx{new(sql.DB), struct{ *sql.DB }{new(sql.DB)}} {
			if err := Check(t.Context(), d, db); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
				t.Errorf("%T: %v", db, err)
			}
		}
		for _, tx := range []sqldialect.Tx{new(sql.Tx), struct{ *sql.Tx }{new(sql.Tx)}} {
			if err := Check(t.Context(), d, tx); err != nil {
				t.Errorf("%T: %v", tx, err)
			}
		}
	}
}
