package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"
)

// What the statements do is tested on real databases, in package internal/test/integration/dbtest.

func TestStatements(t *testing.T) {
	for _, c := range []struct {
		table         Table
		read, written string
	}{
		{
			Table{Dialect: Postgres, Name: "item", Key: "id", Columns: []string{"stock", "price"}},
			"SELECT version, stock, price FROM item WHERE id = $1",
			"UPDATE item SET stock = $1, price = $2, version = version + 1 WHERE id = $3 AND version = $4",
		},
		{
			Table{Dialect: MySQL, Name: "shop.item", Key: "id", Version: "rev", Columns: []string{"stock"}},
			"SELECT rev, stock FROM shop.item WHERE id = ?",
			"UPDATE shop.item SET stock = ?, rev = rev + 1 WHERE id = ? AND rev = ?",
		},
	} {
		if got := c.table.selection(); got != c.read {
			t.Errorf("reads by %s, want %s", got, c.read)
		}
		if got := c.table.update(); got != c.written {
			t.Errorf("writes by %s, want %s", got, c.written)
		}
	}
}

// noDB panics when it is used.
type noDB struct{ Querier }

// TestRefusedBeforeIO: what cannot be a statement is refused (P10).
func TestRefusedBeforeIO(t *testing.T) {
	ctx := t.Context()
	good := Table{Dialect: SQLite, Name: "item", Key: "id", Columns: []string{"a", "b"}}
	for what, table := range map[string]Table{
		"no dialect": {Name: "item", Key: "id", Columns: []string{"a", "b"}},
		"no name":    {Dialect: SQLite, Key: "id", Columns: []string{"a", "b"}},
		"no key":     {Dialect: SQLite, Name: "item", Columns: []string{"a", "b"}},
		"no columns": {Dialect: SQLite, Name: "item", Key: "id"},
		"one value":  good,
	} {
		var value int
		if _, err := table.Read(ctx, noDB{}, 1, &value); err == nil {
			t.Errorf("Read with %s: no error", what)
		}
		if err := table.Write(ctx, noDB{}, 1, 0, value); err == nil {
			t.Errorf("Write with %s: no error", what)
		}
		if err := table.Update(ctx, nil, 1, nil, func(Row) ([]any, error) { return []any{value}, nil }); err == nil {
			t.Errorf("Update with %s: no error", what)
		}
	}
	for _, o := range []Options{{Tries: -1}, {Pause: -1}, {Pause: 2, MaxPause: 1}, {MaxPause: time.Microsecond}} {
		if err := again(ctx, &o, func() error { t.Errorf("tried with %+v", o); return nil }); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestAgain: conflicts are tried again, as often as said, and nothing else is.
func TestAgain(t *testing.T) {
	other := errors.New("connection lost")
	for _, c := range []struct {
		results []error
		want    error
		tries   int
	}{
		{[]error{nil}, nil, 1},
		{[]error{ErrConflict, ErrConflict, nil}, nil, 3},
		{[]error{ErrConflict, other, nil}, other, 2},
		{[]error{ErrConflict, ErrConflict, ErrConflict, nil}, ErrConflict, 3},
		{[]error{sql.ErrNoRows, nil}, sql.ErrNoRows, 1},
	} {
		tries := 0
		err := again(t.Context(), &Options{Tries: 3, Pause: time.Microsecond}, func() error {
			tries++
			return c.results[tries-1]
		})
		if !errors.Is(err, c.want) || tries != c.tries {
			t.Errorf("%v: %d tries, %v; want %d and %v", c.results, tries, err, c.tries, c.want)
		}
	}
}

// TestAgainEndsWithItsContext, in the middle of a long pause.
func TestAgainEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := again(ctx, &Options{Pause: 1000 * time.Hour}, func() error {
		cancel(cause)
		return ErrConflict
	})
	if !errors.Is(err, cause) || !errors.Is(err, ErrConflict) {
		t.Errorf("the error is %v, want %v and ErrConflict", err, cause)
	}
}
