package fence

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/sqlerr"
	"github.com/holdfastlock/holdfast/internal/sqltx"
)

// Dialect is a database's SQL, in which [Dialect.Admit] guards resources in that database. Their marks are in
// a table of their own.
//
// Admit locks the row with the marks by writing it, until the transaction ends: that makes one step of the
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
type Dialect uint8

// The dialects.
const (
	Postgres Dialect = iota + 1 // PostgreSQL 9.5 and later
	MySQL                       // MySQL 8.0 and MariaDB 10.6, and later; InnoDB tables
	SQLite                      // SQLite 3.35 and later
)

// Tx is what a guard needs of a transaction: a *sql.Tx, a pgx.Tx by sqllock/pgconn.FromTx, or a *sql.Conn on
// which the caller has begun a transaction by hand. A *sql.DB, a type that embeds one, and a *sql.Conn
// without a transaction are refused: every statement would be a transaction of its own. With types that have
// no methods Commit and Rollback, checking that costs two more statements (in SQLite one).
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// resourceColumn defines the key of the table of marks. It must keep apart any two names that differ in a
// byte: MySQL's text does not, under most collations and with trailing spaces.
var resourceColumn = [...]string{
	Postgres: `resource TEXT COLLATE "C" PRIMARY KEY`,
	MySQL:    "resource VARBINARY(512) PRIMARY KEY",
	SQLite:   "resource TEXT NOT NULL PRIMARY KEY",
}

// Schema returns the statement that creates the table of marks, holdfast_fence, unless it exists. Run it
// once, for example among your migrations, and in the schema where the transactions will look for the table;
// never in a guarded transaction.
//
// A row may be deleted only when no work under an older token can arrive any more.
func (d Dialect) Schema() string {
	if !d.known() {
		return ""
	}
	ddl := "CREATE TABLE IF NOT EXISTS holdfast_fence (" + resourceColumn[d] +
		", exclusive_mark BIGINT NOT NULL DEFAULT 0, shared_mark BIGINT NOT NULL DEFAULT 0)"
	if d == MySQL {
		ddl += " ENGINE=InnoDB"
	}
	return ddl
}

// Admit adopts the token for the resource in the caller's transaction, or refuses it with a *StaleError
// ([ErrStale]), [ErrNoToken] or [ErrInvalid]; any other error is the database's, wrapped. After every error
// the caller rolls back. The admission takes effect when the transaction commits.
//
// The name of the resource follows the rules for names of locks, and best is the name of the lock. The table
// of [Dialect.Schema] must exist.
func (d Dialect) Admit(ctx context.Context, tx Tx, resource string, token driver.Token, mode driver.Mode) error {
	if err := checkUse(resource, token, mode); err != nil {
		return err
	}
	if !d.known() {
		return d.unknown()
	}
	// Without a transaction the token would be adopted at once, a newer holder would not wait for the work, and
	// refused work would not be rolled back.
	if err := sqltx.Check(ctx, tx, d == SQLite); err != nil {
		return fmt.Errorf("fence: the guard needs the transaction that does the work, and %w", err)
	}
	offer := marks{exclusive: token}
	if mode == driver.Shared {
		offer = marks{shared: token}
	}
	var after marks
	var err error
	switch d {
	case Postgres:
		after, err = raise(ctx, tx, raisePostgres, resource, offer)
	case SQLite:
		after, err = raise(ctx, tx, raiseSQLite, resource, offer)
	case MySQL:
		after, err = raiseMySQL(ctx, tx, resource, offer)
	}
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
	raisePostgres = "INSERT INTO holdfast_fence AS f (resource, exclusive_mark, shared_mark) VALUES ($1, $2, $3)" +
		" ON CONFLICT (resource) DO UPDATE SET exclusive_mark = GREATEST(f.exclusive_mark, excluded.exclusive_mark)," +
		" shared_mark = GREATEST(f.shared_mark, excluded.shared_mark)" +
		" RETURNING exclusive_mark, shared_mark"

	raiseSQLite = "INSERT INTO holdfast_fence AS f (resource, exclusive_mark, shared_mark) VALUES (?, ?, ?)" +
		" ON CONFLICT (resource) DO UPDATE SET exclusive_mark = MAX(f.exclusive_mark, excluded.exclusive_mark)," +
		" shared_mark = MAX(f.shared_mark, excluded.shared_mark)" +
		" RETURNING exclusive_mark, shared_mark"

	// MySQL has no RETURNING. This takes the row's exclusive lock whether it changes the row or not. The name
	// travels as hexadecimal digits: no conversion between character sets touches them, and a client library
	// that writes arguments into the text cannot quote them wrongly, as it may a name on a connection in GBK.
	raiseMySQL1 = "INSERT INTO holdfast_fence (resource, exclusive_mark, shared_mark) VALUES (UNHEX(?), ?, ?)" +
		" ON DUPLICATE KEY UPDATE exclusive_mark = GREATEST(exclusive_mark, ?), shared_mark = GREATEST(shared_mark, ?)"

	// A locking read sees the newest marks. A plain one would use the transaction's snapshot if there is one,
	// and fix it if there is none: too early for the guard of another resource that comes next.
	raiseMySQL2 = "SELECT exclusive_mark, shared_mark FROM holdfast_fence WHERE resource = UNHEX(?) FOR UPDATE"
)

func raise(ctx context.Context, tx Tx, query, resource string, offer marks) (after marks, err error) {
	err = tx.QueryRowContext(ctx, query, resource, int64(offer.exclusive), int64(offer.shared)).
		Scan(&after.exclusive, &after.shared)
	return after, err
}

func raiseMySQL(ctx context.Context, tx Tx, resource string, offer marks) (after marks, err error) {
	key := hex.EncodeToString([]byte(resource))
	e, s := int64(offer.exclusive), int64(offer.shared)
	if _, err := tx.ExecContext(ctx, raiseMySQL1, key, e, s, e, s); err != nil {
		return marks{}, err
	}
	err = tx.QueryRowContext(ctx, raiseMySQL2, key).Scan(&after.exclusive, &after.shared)
	return after, err
}

// String returns "postgres", "mysql" or "sqlite".
func (d Dialect) String() string {
	if !d.known() {
		return "unknown dialect"
	}
	return [...]string{Postgres: "postgres", MySQL: "mysql", SQLite: "sqlite"}[d]
}

func (d Dialect) known() bool { return d >= Postgres && d <= SQLite }

func (d Dialect) unknown() error {
	return fmt.Errorf("fence: dialect %d is unknown: use fence.Postgres, fence.MySQL or fence.SQLite", uint8(d))
}
