package txlock

import (
	"context"
	"database/sql"
)

// Schema returns the statement that creates the table of names, holdfast_txlock, unless it exists. Run it
// once, for example among your migrations, in the schema where the transactions will find the table. A role
// that locks needs SELECT and UPDATE on it, one that creates and removes names INSERT and DELETE. Schema
// panics if the dialect is unknown.
func Schema(d Dialect) string {
	return d.Words("CREATE TABLE IF NOT EXISTS holdfast_txlock (name {key} NOT NULL PRIMARY KEY, turn BIGINT NOT NULL){busy}")
}

// Execer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Create makes rows for the names, unless they have one; any number of clients may do so at the same time.
// With a *sql.DB the names can be locked at once. With a transaction they can be locked when it is committed;
// until then others that create one of them wait. In PostgreSQL above READ COMMITTED it fails with
// [ErrConflict] if another transaction has created one since this one's snapshot.
func Create(ctx context.Context, d Dialect, db Execer, names ...string) error {
	text := "INSERT INTO holdfast_txlock (name, turn) VALUES ({name}, 0) ON CONFLICT (name) DO NOTHING"
	if d == MySQL {
		text = "INSERT IGNORE INTO holdfast_txlock (name, turn) VALUES ({name}, 0)"
	}
	return exec(ctx, d, db, "creating", text, names)
}

// Remove deletes the rows of names, which the transaction must have locked exclusively, when the things that
// they stood for are gone. Transactions that wait for one of them get [ErrUnknown], or [ErrConflict], when
// this one commits.
func Remove(ctx context.Context, d Dialect, tx Tx, names ...string) error {
	if err := check(ctx, d, tx, names); err != nil {
		return err
	}
	return exec(ctx, d, tx, "removing", "DELETE FROM holdfast_txlock WHERE name = {name}", names)
}

// exec runs a statement for each name, in the order of locks.
func exec(ctx context.Context, d Dialect, db Execer, doing, text string, names []string) error {
	if err := checkNames(d, names); err != nil {
		return err
	}
	for _, name := range inOrder(names) {
		if _, err := db.ExecContext(ctx, d.Words(text), d.NameArg(name)); err != nil {
			return failed(doing, name, err)
		}
	}
	return nil
}
