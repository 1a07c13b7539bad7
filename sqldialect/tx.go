package sqldialect

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Tx is a transaction of the caller: a *sql.Tx, a pgx.Tx by sqllock/pgconn.FromTx, or a *sql.Conn on which the
// caller has begun a transaction by hand. A *sql.DB, a type that embeds one, and a *sql.Conn without a transaction
// are refused: every statement would be a transaction of its own. With types that have no method Commit,
// checking that costs two more statements (in SQLite one).
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CheckTx returns an error if the dialect is unknown, or statements of tx are not in one transaction.
func (d Dialect) CheckTx(ctx context.Context, tx Tx) error {
	if err := d.Check(); err != nil {
		return err
	}
	switch tx.(type) {
	case interface{ Stats() sql.DBStats }:
		return none(tx, nil)
	case interface{ Commit() error }, interface{ Commit(context.Context) error }:
		return nil // a *sql.Tx or a pgx.Tx, or what embeds one
	}
	if d == SQLite {
		// Outside of a transaction one can begin, which takes no lock; a savepoint would begin one itself. Both
		// statements are sent as one, because they must reach the same connection.
		_, err := tx.ExecContext(ctx, "BEGIN DEFERRED; ROLLBACK")
		if err != nil && strings.Contains(err.Error(), "within a transaction") {
			return nil
		}
		return none(tx, err)
	}
	// Outside of a transaction PostgreSQL refuses a savepoint, and in MySQL it is gone when its statement is over,
	// unless autocommit is off.
	for _, query := range []string{"SAVEPOINT holdfast", "RELEASE SAVEPOINT holdfast"} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return none(tx, err)
		}
	}
	return nil
}

func none(tx any, err error) error {
	const needed = "the transaction that does the work is needed, and this %T has none"
	if err == nil {
		return fmt.Errorf(needed, tx)
	}
	return fmt.Errorf(needed+", or it cannot be used: %w", tx, err)
}
