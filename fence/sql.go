package fence

import (
	"context"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/sqlerr"
	"github.com/holdfastlock/holdfast/sqldialect"
)

// Dialect is a database's SQL. It is the same type in packages sqllock, txlock and optimistic.
type Dialect = sqldialect.Dialect

// The dialects.
const (
	Postgres = sqldialect.Postgres // PostgreSQL 9.5 and later
	MySQL    = sqldialect.MySQL    // MySQL 8.0 and MariaDB 10.6, and later; InnoDB tables
	SQLite   = sqldialect.SQLite   // SQLite 3.35 and later
)

// Tx is the transaction that does the work.
type Tx = sqldialect.Tx

// Schema returns the statement that creates the table of marks, holdfast_fence, unless it exists. Run it
// once, for example among your migrations, and in the schema where the transactions will look for the table;
// never in a guarded transaction. Schema panics if the dialect is unknown.
//
// A row may be deleted only when no work under an older token can arrive any more.
func Schema(d Dialect) string {
	return d.Words("CREATE TABLE IF NOT EXISTS holdfast_fence (resource {key} NOT NULL PRIMARY KEY," +
		" exclusive_mark BIGINT NOT NULL DEFAULT 0, shared_mark BIGINT NOT NULL DEFAULT 0){busy}")
}

// AdmitTx adopts the token for the resource in the caller's transaction, or refuses it with a *StaleError
// ([ErrStale]), [ErrNoToken] or [ErrInvalid]; any other error is the database's, wrapped. After every error
// the caller rolls back. The admission takes effect when the transaction commits.
//
// The name of the resource follows the rules for names of locks, and best is the name of the lock. The table
// of [Schema] must exist.
//
// AdmitTx locks the row with the marks by writing it, until the transaction ends: that makes one step of the
// admission and the work. Another transaction with a token for the resource waits, and then sees the marks
// and the data as the first one left them. So
//
//   - the guard must run in the transaction that does the work, and must be its
//     first statement; if there are several resources, their guards come first
//     together. Data read before it may be older than the marks, at READ
//     COMMITTED because each statement reads anew, in MySQL's REPEATABLE READ
//     because the first plain SELECT fixes what all later ones see;
//   - the transaction must roll back when it is refused;
//   - a transaction that only reads is guarded too, and so cannot be a
//     read-only one. Those under shared holds wait for each other's end: keep
//     them short;
//   - guards of several resources are taken in one order everywhere, or
//     transactions deadlock (the database ends one of them).
//
// With that the guard is right at these levels of isolation. Where the database reports a serialization
// failure, a deadlock or that it is busy, the whole transaction may be run again with the same token.
//
//   - PostgreSQL, READ COMMITTED: the guard waits for the row and judges its
//     newest version. REPEATABLE READ and SERIALIZABLE: the same, but the guard
//     fails (SQLSTATE 40001) if another changed the row meanwhile.
//   - MySQL and MariaDB with InnoDB, from READ COMMITTED upwards: writes and
//     locking reads see the newest version of the row. Not after START
//     TRANSACTION WITH CONSISTENT SNAPSHOT, which fixes what is seen before the
//     guard.
//   - SQLite: transactions are serializable; the guard takes the database's
//     write lock, or fails as busy after the busy timeout.
//
// In MySQL two transactions that are the first ever to touch a resource may deadlock; one of them is then run
// again.
//
// Marks and data must be in one database: then a fail-over or a restore that loses the last commits takes
// both back together.
func AdmitTx(ctx context.Context, d Dialect, tx Tx, resource string, token driver.Token, mode driver.Mode) error {
	if err := checkUse(resource, token, mode); err != nil {
		return err
	}
	// Without a transaction the token would be adopted at once, a newer holder would not wait for the work, and
	// refused work would not be rolled back.
	if err := d.CheckTx(ctx, tx); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	offer := marks{exclusive: token}
	if mode == driver.Shared {
		offer = marks{shared: token}
	}
	after, err := raise(ctx, d, tx, d.NameArg(resource), int64(offer.exclusive), int64(offer.shared))
	if err != nil {
		return fmt.Errorf("fence: admitting %v token %d of %q: %w", mode, token, resource, sqlerr.InTable("holdfast_fence", err))
	}
	_, err = after.admit(token, mode)
	return named(resource, err)
}

// The statements raise the marks to the token, lock the row, and return the new marks. The rule of the gate
// then decides whether the token is admitted: a mark that was raised to the token itself does not refuse it.
// If the token is refused, its transaction is rolled back, and the marks with it. If the caller commits all
// the same, no mark is above the newest that was there before, so no newer hold is refused because of it.
const (
	// ON CONFLICT locks the newest version of the row and computes with it.
	raiseText = "INSERT INTO holdfast_fence AS f (resource, exclusive_mark, shared_mark) VALUES ({name}, {2}, {3})" +
		" ON CONFLICT (resource) DO UPDATE SET exclusive_mark = {max}(f.exclusive_mark, excluded.exclusive_mark)," +
		" shared_mark = {max}(f.shared_mark, excluded.shared_mark)" +
		" RETURNING exclusive_mark, shared_mark"

	// MySQL has no RETURNING. This takes the row's exclusive lock whether it changes the row or not.
	raiseMySQL = "INSERT INTO holdfast_fence (resource, exclusive_mark, shared_mark) VALUES ({name}, ?, ?)" +
		" ON DUPLICATE KEY UPDATE exclusive_mark = GREATEST(exclusive_mark, ?), shared_mark = GREATEST(shared_mark, ?)"

	// A locking read sees the newest marks. A plain one would use the transaction's snapshot if there is one,
	// and fix it if there is none: too early for the guard of another resource that comes next.
	readMySQL = "SELECT exclusive_mark, shared_mark FROM holdfast_fence WHERE resource = {name} FOR UPDATE"
)

func raise(ctx context.Context, d Dialect, tx Tx, resource any, exclusive, shared int64) (after marks, err error) {
	text, args := raiseText, []any{resource, exclusive, shared}
	if d == MySQL {
		if _, err := tx.ExecContext(ctx, d.Words(raiseMySQL), append(args, exclusive, shared)...); err != nil {
			return marks{}, err
		}
		text, args = readMySQL, args[:1]
	}
	err = tx.QueryRowContext(ctx, d.Words(text), args...).Scan(&after.exclusive, &after.shared)
	return after, err
}
