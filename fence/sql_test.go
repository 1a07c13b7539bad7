package fence

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
)

// What the statements do is tested on real databases, by package fencetest.

// noTx fails the test when it is used.
type noTx struct{ t *testing.T }

func (tx noTx) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	tx.t.Errorf("executed %s", query)
	return nil, errors.New("unexpected")
}

func (tx noTx) QueryRowContext(_ context.Context, query string, _ ...any) *sql.Row {
	tx.t.Errorf("queried %s", query)
	return new(sql.Row)
}

// TestAdmitRefusesBeforeIO: names and pools, too, are refused before any I/O.
func TestAdmitRefusesBeforeIO(t *testing.T) {
	for _, name := range []string{"", "a//b", "a\n", strings.Repeat("x", 513)} {
		if err := MySQL.Admit(t.Context(), noTx{t}, name, 1, exclusive); !errors.Is(err, ErrInvalid) {
			t.Errorf("name %.20q: %v", name, err)
		}
	}
	pools := []Tx{new(sql.DB), struct{ *sql.DB }{new(sql.DB)}}
	for _, pool := range pools {
		if err := Postgres.Admit(t.Context(), pool, "a", 1, exclusive); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
			t.Errorf("%T: %v", pool, err)
		}
	}
}

// TestPredicatePlaceholders counts them: each piece has one, in PostgreSQL the
// same for both.
func TestPredicatePlaceholders(t *testing.T) {
	for _, c := range []struct {
		dialect     Dialect
		n           int
		placeholder string
	}{{Postgres, 1, "$1"}, {Postgres, 12, "$12"}, {MySQL, 12, "?"}, {SQLite, 12, "?"}} {
		for _, p := range []Predicate{
			must(c.dialect.Predicate(42, exclusive, c.n)),
			must(c.dialect.Predicate(42, shared, c.n)),
		} {
			for _, piece := range []string{p.Set, p.Where} {
				if strings.Count(piece, c.placeholder) != 1 || strings.Count(piece, "$")+strings.Count(piece, "?") != 1 {
					t.Errorf("%v: %q has not one placeholder %s", c.dialect, piece, c.placeholder)
				}
			}
			if p.Arg != int64(42) {
				t.Errorf("%v: Arg is %#v", c.dialect, p.Arg)
			}
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := Postgres.Predicate(42, exclusive, n); err == nil {
			t.Errorf("placeholder $%d was accepted", n)
		}
	}
}

// result is what a database returns of an UPDATE.
type result struct {
	id, rows int64
	err      error
}

func (r result) LastInsertId() (int64, error) { return r.id, r.err }
func (r result) RowsAffected() (int64, error) { return r.rows, r.err }

// TestPredicateCheck: MySQL's count of rows must not matter, nor an id that is
// not the token.
func TestPredicateCheck(t *testing.T) {
	lost := errors.New("connection lost")
	for _, c := range []struct {
		dialect Dialect
		result  result
		want    error
	}{
		{Postgres, result{rows: 1}, nil},
		{Postgres, result{rows: 0}, ErrStale},
		{Postgres, result{err: lost}, lost},
		{SQLite, result{rows: 1, id: 7}, nil},
		{SQLite, result{rows: 0, id: 42}, ErrStale},
		{MySQL, result{rows: 0, id: 42}, nil},
		{MySQL, result{rows: 1, id: 42}, nil},
		{MySQL, result{rows: 0, id: 0}, ErrStale},
		{MySQL, result{rows: 1, id: 41}, ErrStale},
		{MySQL, result{err: lost}, lost},
	} {
		if err := must(c.dialect.Predicate(42, exclusive, 1)).Check(c.result); !errors.Is(err, c.want) {
			t.Errorf("%v, %+v: %v, want %v", c.dialect, c.result, err, c.want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
