// Package sqltx finds out whether a caller's statements are in one transaction or each
// commit by themselves, for packages that need the caller's transaction: fence and txlock.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Execer is a *sql.Tx, or what the caller uses in its place.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Check returns an error unless statements of tx are in one transaction. With a type that is
// no *sql.DB and has no methods Commit and Rollback, a *sql.Conn for example, it runs two
// statements (in SQLite one). The error says what is wrong with tx, and completes a text
// such as "the transaction is needed, and".
func Check(ctx context.Context, tx Execer, sqlite bool) error {
	switch tx := tx.(type) {
	case interface{ Stats() sql.DBStats }:
		return errors.New("a *sql.DB is none")
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
		if sqlite {
			return inSQLite(ctx, tx)
		}
		return inServer(ctx, tx)
	}
}

// inServer tests whether a savepoint lasts until the next statement. Outside of a
// transaction PostgreSQL refuses one, and in MySQL it is gone when its statement is over,
// unless autocommit is off.
func inServer(ctx context.Context, tx Execer) error {
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
func inSQLite(ctx context.Context, tx Execer) error {
	_, err := tx.ExecContext(ctx, "BEGIN DEFERRED; ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "within a transaction") {
		return nil
	}
	return none(tx, err)
}

func none(tx Execer, err error) error {
	if err == nil {
		return fmt.Errorf("this %T has none", tx)
	}
	return fmt.Errorf("this %T has none, or it cannot be used: %w", tx, err)
}
