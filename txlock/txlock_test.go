package txlock

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
)

// What the statements do is tested on real databases, in package internal/test/integration/dbtest.

// noTx panics when it is used.
type noTx struct{ Tx }

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
	try("no name", "no name", MySQL, noTx{})
	try("a bad name", "name", MySQL, noTx{}, "good", "a//b")
	try("a name too long", "name", SQLite, noTx{}, strings.Repeat("x", 513))
	try("a pool", "*sql.DB", Postgres, new(sql.DB), "a")
	try("what embeds a pool", "*sql.DB", Postgres, struct{ *sql.DB }{new(sql.DB)}, "a")
	try("dialect 0", "unknown", 0, noTx{}, "a")
	try("dialect 4", "unknown", 4, noTx{}, "a")
	if _, err := LockFree(ctx, SQLite, noTx{}, 0, "a"); err == nil {
		t.Error("limit 0 was accepted")
	}
	if err := Create(ctx, Postgres, noTx{}, "good", ""); err == nil {
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
