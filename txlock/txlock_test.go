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
		_, free := LockFree(ctx, d, tx, 1, names...)
		for how, err := range map[string]error{
			"Lock": Lock(ctx, d, tx, names...), "LockShared": LockShared(ctx, d, tx, names...),
			"TryLock": TryLock(ctx, d, tx, names...), "LockFree": free, "Remove": Remove(ctx, d, tx, names...),
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
	if _, err := LockFree(ctx, SQLite, noTx{t}, 0, "a"); err == nil {
		t.Error("limit 0 was accepted")
	}
	if err := Create(ctx, Postgres, noTx{t}, "good", ""); err == nil {
		t.Error("a row for a bad name was created")
	}
}

// TestInOrder: the caller's list is left as it is.
func TestInOrder(t *testing.T) {
	names := []string{"b", "a", "b", "C"}
	if got, want := inOrder(names), []string{"C", "a", "b"}; !slices.Equal(got, want) || names[0] != "b" {
		t.Errorf("%q of %q, want %q", got, names, want)
	}
}
