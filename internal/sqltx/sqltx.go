// Package sqltx finds out whether a caller's statements are in one transaction or each
// commit by themselves, for packages that need the caller's transaction: fence and txlock.
package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/sqldialect"
)

// Check returns an error if the dialect is unknown, or unless statements of tx are in one transaction. With a type
// that is no *sql.DB and has no methods Commit and Rollback, a *sql.Conn for example, it runs two statements (in
// SQLite one).
func Check(ctx context.Context, d sqldialect.Dialect, tx sqldialect.Tx) error {
	if err := d.Check(); err != nil {
		return err
	}
	switch tx := tx.(type) {
	case interface{ Stats() sql.DBStats }:
		return none(tx, nil)
	case interface {
		Commit() error
		Rollback() error
	}:
		return nil // a *sql.Tx, or what embeds one
	case interface {
		Commit(context.Context) error
		Rollback(context.Context) error
	}:
		return nil // what embeds a pgx.Tx
	default:
		if d == sqldialect.SQLite {
			return inSQLite(ctx, tx)
		}
		return inServer(ctx, tx)
	}
}

// inServer tests whether a savepoint lasts until the next statement. Outside of a
// transaction PostgreSQL refuses one, and in MySQL it is gone when its statement is over,
// unless autocommit is off.
func inServer(ctx context.Context, tx sqldialect.Tx) error {
	for _, query := range []string{"SAVEPOINT holdfast", "RELEASE SAVEPOINT holdfast"} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return none(tx, err)
		}
	}
	return nil
}

// inSQLite tests whether a transaction can begin, which takes no lock; a savepoint would
// begin one itself. Both statements are sent as one, because they must reach the same
// connection.
func inSQLite(ctx context.Context, tx sqldialect.Tx) error {
	_, err := tx.ExecContext(ctx, "BEGIN DEFERRED; ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "within a transaction") {
		return nil
	}
	return none(tx, err)
}

func none(tx any, err error) error {
	const needed = "the transaction that does the work is needed, and this %T has none"
	if err == nil {
		return fmt.Errorf(needed, tx)
	}
	return fmt.Errorf(needed+", or it cannot be used: %w", tx, err)
}
