package txlock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
)

// What the statements do is tested on real databases, in package internal/test/integration/dbtest.

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

// TestRefusedBeforeIO: what can never be locked is refused before any statement (P10).
func TestRefusedBeforeIO(t *testing.T) {
	ctx := t.Context()
	try := func(what, want string, d Dialect, tx Tx, names ...string) {
		t.Helper()
		_, free := d.LockFree(ctx, tx, 1, names...)
		for how, err := range map[string]error{
			"Lock": d.Lock(ctx, tx, names...), "LockShared": d.LockShared(ctx, tx, names...),
			"TryLock": d.TryLock(ctx, tx, names...), "LockFree": free, "Remove": d.Remove(ctx, tx, names...),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: %v; want an error with %q", how, what, err, want)
			}
		}
	}
	try("no name", "no name", MySQL, noTx{t})
	try("a bad name", "name", MySQL, noTx{t}, "good", "a//b")
	try("a name too long", "name", SQLite, noTx{t}, strings.Repeat("x", 513))
	try("a pool", "*sql.DB", Postgres, new(sql.DB), "a")
	try("what embeds a pool", "*sql.DB", Postgres, struct{ *sql.DB }{new(sql.DB)}, "a")
	try("dialect 0", "unknown", 0, noTx{t}, "a")
	try("dialect 4", "unknown", 4, noTx{t}, "a")
	if _, err := SQLite.LockFree(ctx, noTx{t}, 0, "a"); err == nil {
		t.Error("limit 0 was accepted")
	}
	if err := Postgres.Create(ctx, noTx{t}, "good", ""); err == nil {
		t.Error("a row for a bad name was created")
	}
}

func TestDialects(t *testing.T) {
	for d, want := range map[Dialect]string{0: "unknown dialect", Postgres: "postgres", MySQL: "mysql", SQLite: "sqlite", 4: "unknown dialect"} {
		if d.String() != want || (d.Schema() == "") != (want == "unknown dialect") {
			t.Errorf("dialect %d is %q with schema %q", uint8(d), d, d.Schema())
		}
	}
}

// TestInOrder: the caller's list is left as it is.
func TestInOrder(t *testing.T) {
	names := []string{"b", "a", "b", "C"}
	if got, want := inOrder(names), []string{"C", "a", "b"}; !slices.Equal(got, want) || names[0] != "b" {
		t.Errorf("%q of %q, want %q", got, names, want)
	}
}
