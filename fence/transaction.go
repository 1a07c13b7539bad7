package fence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// inTransaction returns an error unless statements of tx are in one transaction.
// Outside of one each would commit by itself: the token is adopted, but a newer holder
// need not wait for the work, and the work is not rolled back if it is refused.
func (d Dialect) inTransaction(ctx context.Context, tx Tx) error {
	switch tx := tx.(type) {
	case interface{ Stats() sql.DBStats }:
		return fmt.Errorf("fence: the guard needs the transaction that does the work, not a *sql.DB")
	case interface {
		Commit() error
		Rollback() error
	}:
		return nil // a *sql.Tx, or what embeds one
	default:
		if d == SQLite {
			return inSQLite(ctx, tx)
		}
		return inServer(ctx, tx)
	}
}

// inServer looks whether a savepoint lasts until the next statement. PostgreSQL refuses
// one outside of a transaction; in MySQL it is gone when its statement is over, unless
// the session does not commit by itself.
func inServer(ctx context.Context, tx Tx) error {
	for _, query := range []string{"SAVEPOINT holdfast_fence", "RELEASE SAVEPOINT holdfast_fence"} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return errNoTransaction(tx, err)
		}
	}
	return nil
}

// inSQLite looks whether another transaction can begin, which takes no lock: in SQLite a
// savepoint outside of a transaction begins one. Both statements go out as one, because
// they must meet the same connection.
func inSQLite(ctx context.Context, tx Tx) error {
	_, err := tx.ExecContext(ctx, "BEGIN DEFERRED; ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "within a transaction") {
		return nil
	}
	return errNoTransaction(tx, err)
}

func errNoTransaction(tx Tx, err error) error {
	if err == nil {
		return fmt.Errorf("fence: the guard needs the transaction that does the work; this %T has none", tx)
	}
	return fmt.Errorf("fence: the guard needs the transaction that does the work; this %T has none, or it cannot be used: %w", tx, err)
}
