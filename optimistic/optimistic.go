// Package optimistic changes rows without locking them: read a row with its version, compute, and write only
// if the version is still the same; otherwise begin again.
//
// It is the right form where conflicts are rare, or where no lock can be held between the read and the write,
// because a person thinks in between: a form in a browser, a request and its If-Match. Where many want one
// row at the same time, all but one of them work in vain: lock the row instead, with package txlock.
//
//	items := optimistic.Table{Dialect: optimistic.Postgres, Name: "item", Key: "id", Columns: []string{"stock"}}
//
//	err := items.Update(ctx, db, 42, nil, func(row optimistic.Row) ([]any, error) {
//		var stock int
//		if err := row.Scan(&stock); err != nil {
//			return nil, err
//		}
//		if stock == 0 {
//			return nil, errSoldOut
//		}
//		return []any{stock - 1}, nil
//	})
//
// For one number, one statement is better still, and needs no package: UPDATE item SET stock = stock - 1
// WHERE id = 42 AND stock > 0.
//
// # Every level of isolation
//
// The condition is part of the UPDATE, and all databases judge it by the newest row or refuse the write. So
// [Table.Write] is right at all levels of PostgreSQL, MySQL, MariaDB and SQLite. They differ in what a
// program may do after it fails:
//
//   - At REPEATABLE READ and SERIALIZABLE, in SQLite at all times, a transaction reads the
//     same snapshot again and again. Reading and writing once more inside it fails for
//     ever. [Retry] begins a new transaction for each try, and [Table.Update] reads
//     outside of any.
//   - PostgreSQL (above READ COMMITTED), MySQL's SERIALIZABLE and SQLite report the
//     conflict as an error and not as a row that was not found; in MySQL that is a
//     deadlock, because its reads lock there. All of them are [ErrConflict] here.
//
// After an error that leaves the outcome unknown, such as a connection that breaks before the database has
// answered, nothing is retried: the change may have happened.
//
// # The simplest form: a unique index
//
// To let only the first of many do something, a unique index is enough, in one statement at every level of
// isolation: once per scheduled instant, per idempotency key, per seat. The first one inserts the row; for
// all others the statement changes no row:
//
//	CREATE TABLE run (job VARCHAR(100) NOT NULL, instant BIGINT NOT NULL, PRIMARY KEY (job, instant))
//
//	INSERT INTO run (job, instant) VALUES ($1, $2) ON CONFLICT DO NOTHING  -- PostgreSQL, SQLite (with ?)
//	INSERT IGNORE INTO run (job, instant) VALUES (?, ?)                    -- MySQL, MariaDB
//
// RowsAffected is 1 for the first and 0 for all others. An INSERT that fails with a duplicate key says the
// same, but in PostgreSQL it ends the transaction, and it fills the server's log. Insert and work belong in
// one transaction: then the row stands for work that was done, and if the first one fails, another can be
// first. Others wait for its end. In PostgreSQL above READ COMMITTED they then fail with SQLSTATE 40001, in
// MySQL two of them can be a deadlock, in SQLite all wait for the busy timeout: [Retry] handles these. INSERT
// IGNORE also ignores other errors, such as a text that is too long. ON DUPLICATE KEY UPDATE does not, but
// the rows it counts depend on the connection's clientFoundRows.
package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/internal/sqlerr"
	"github.com/holdfastlock/holdfast/sqldialect"
)

// ErrConflict: another transaction was faster. Roll back; the whole transaction, from its first read on, may
// be run again. Match it with errors.Is. If the database reported the conflict, its error is wrapped too. It
// is the same error as txlock.ErrConflict.
var ErrConflict = sqlerr.ErrConflict

// Dialect is a database's SQL. It is the same type in packages sqllock, txlock and fence.
type Dialect = sqldialect.Dialect

// The dialects.
const (
	Postgres = sqldialect.Postgres // PostgreSQL
	MySQL    = sqldialect.MySQL    // MariaDB and MySQL; InnoDB tables
	SQLite   = sqldialect.SQLite   // SQLite
)

// Table is a table whose rows have a version. The names are written into the statements as they are: quote
// them if need be, and never take them from the program's input. Keys and values are arguments. A client
// library of MySQL that writes arguments into the text (interpolateParams) must not do so on connections in
// GBK, Big5, SJIS or CP932. A Table may be used by several goroutines.
//
// Every writer of the columns must raise the version, also those that do not use this package.
type Table struct {
	Dialect Dialect
	Name    string // of the table
	Key     string // the column, or an expression, by which one row is found
	// Version is the column of the version, an integer that is NOT NULL, 64 bits wide at best. "": "version".
	Version string
	Columns []string // those read and written, at least one
}

// Querier is a *sql.DB, a *sql.Conn or a *sql.Tx; or a pgx.Tx by sqllock/pgconn.FromTx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Read reads the row's columns into dest, as sql.Row.Scan does, and returns its version for [Table.Write]. If
// there is no such row the error is sql.ErrNoRows.
func (t Table) Read(ctx context.Context, q Querier, key any, dest ...any) (version int64, err error) {
	if err := t.check(len(dest)); err != nil {
		return 0, err
	}
	if err := q.QueryRowContext(ctx, t.selection(), key).Scan(append([]any{&version}, dest...)...); err != nil {
		return 0, fmt.Errorf("optimistic: reading %s: %w", t.Name, sqlerr.Judged(err))
	}
	return version, nil
}

// Write writes the row's columns if the row still has the version that Read returned, and raises the version.
// If the version is another, or the row is gone, the error is [ErrConflict]. In a transaction the write takes
// effect when that commits.
func (t Table) Write(ctx context.Context, q Querier, key any, version int64, values ...any) error {
	if err := t.check(len(values)); err != nil {
		return err
	}
	args := append(append(make([]any, 0, len(values)+2), values...), key, version)
	result, err := q.ExecContext(ctx, t.update(), args...)
	if err == nil {
		var rows int64
		// The version changes, so the row counts as changed in MySQL too.
		if rows, err = result.RowsAffected(); err == nil && rows == 0 {
			err = ErrConflict
		}
	}
	if err != nil {
		return fmt.Errorf("optimistic: writing %s: %w", t.Name, sqlerr.Judged(err))
	}
	return nil
}

// Row is the row that [Table.Update] is to change.
type Row struct {
	read func(dest ...any) error
}

// Scan reads the columns into dest, as sql.Row.Scan does. If there is no such row the error is sql.ErrNoRows.
// Called again it reads again.
func (r Row) Scan(dest ...any) error { return r.read(dest...) }

// Update reads the row, calls fn for the columns' new values, and writes them if nobody has changed the row
// meanwhile; otherwise it does all of that again. It gives up with [ErrConflict] after as many tries as the
// options say. If fn returns an error, Update returns it and writes nothing.
//
// Each statement is a transaction of its own, so fn may take its time. It may run several times, and its side
// effects are not undone. If more belongs in the same transaction, use [Retry] with Read and Write.
func (t Table) Update(ctx context.Context, db *sql.DB, key any, o *Options, fn func(Row) ([]any, error)) error {
	if err := t.check(len(t.Columns)); err != nil {
		return err
	}
	return again(ctx, o, func() error {
		var version int64
		read := false
		values, err := fn(Row{func(dest ...any) (err error) {
			version, err = t.Read(ctx, db, key, dest...)
			read = err == nil
			return err
		}})
		if err != nil {
			return err
		}
		if !read {
			return errors.New("optimistic: the function has not read the row")
		}
		return t.Write(ctx, db, key, version, values...)
	})
}

// check returns an error if the statements cannot be made.
func (t Table) check(values int) error {
	switch {
	case !t.Dialect.Known():
		return fmt.Errorf("optimistic: %w", t.Dialect.Check())
	case t.Name == "" || t.Key == "" || len(t.Columns) == 0:
		return errors.New("optimistic: a Table needs its name, its key and at least one column")
	case values != len(t.Columns):
		return fmt.Errorf("optimistic: %d values for %d columns", values, len(t.Columns))
	}
	return nil
}

func (t Table) version() string {
	if t.Version == "" {
		return "version"
	}
	return t.Version
}

// selection returns the statement that reads a row; its argument is the key.
func (t Table) selection() string {
	return "SELECT " + t.version() + ", " + strings.Join(t.Columns, ", ") + " FROM " + t.Name + " WHERE " + t.Key + " = " + t.Dialect.Placeholder(1)
}

// update returns the statement that writes a row; its arguments are the values, the key and the version.
func (t Table) update() string {
	var b strings.Builder
	b.WriteString("UPDATE " + t.Name + " SET ")
	for i, column := range t.Columns {
		b.WriteString(column + " = " + t.Dialect.Placeholder(i+1) + ", ")
	}
	n := len(t.Columns)
	b.WriteString(t.version() + " = " + t.version() + " + 1 WHERE " + t.Key + " = " + t.Dialect.Placeholder(n+1) +
		" AND " + t.version() + " = " + t.Dialect.Placeholder(n+2))
	return b.String()
}
