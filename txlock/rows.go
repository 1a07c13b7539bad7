package txlock

import (
	"context"
	"database/sql"
	"encoding/hex"
)

// schemas create the table. Names that differ in a byte are different: MySQL's text types would not keep them
// apart, under most collations and with trailing spaces. The column turn counts the exclusive locks of a
// name: see texts.
var schemas = [...]string{
	// Each lock writes a new version of its row. Room for that on the same page, and a vacuum that does not wait
	// for a fifth of the table, keep the table small.
	Postgres: `CREATE TABLE IF NOT EXISTS holdfast_txlock (name TEXT COLLATE "C" PRIMARY KEY, turn BIGINT NOT NULL)` +
		" WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)",
	MySQL:  "CREATE TABLE IF NOT EXISTS holdfast_txlock (name VARBINARY(512) PRIMARY KEY, turn BIGINT NOT NULL) ENGINE=InnoDB",
	SQLite: "CREATE TABLE IF NOT EXISTS holdfast_txlock (name TEXT NOT NULL PRIMARY KEY, turn INTEGER NOT NULL) WITHOUT ROWID",
}

// Schema returns the statement that creates the table of names, holdfast_txlock, unless it exists. Run it
// once, for example among your migrations, in the schema where the transactions will find the table. A role
// that locks needs SELECT and UPDATE on it, one that creates and removes names INSERT and DELETE. It is ""
// for an unknown dialect.
func (d Dialect) Schema() string {
	if !d.known() {
		return ""
	}
	return schemas[d]
}

// Execer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var (
	createStatements = [...]string{
		Postgres: "INSERT INTO holdfast_txlock (name, turn) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING",
		MySQL:    "INSERT IGNORE INTO holdfast_txlock (name, turn) VALUES (UNHEX(?), 0)",
		SQLite:   "INSERT INTO holdfast_txlock (name, turn) VALUES (?, 0) ON CONFLICT (name) DO NOTHING",
	}
	removeStatements = [...]string{
		Postgres: "DELETE FROM holdfast_txlock WHERE name = $1",
		MySQL:    "DELETE FROM holdfast_txlock WHERE name = UNHEX(?)",
		SQLite:   "DELETE FROM holdfast_txlock WHERE name = ?",
	}
)

// Create makes rows for the names, unless they have one; any number of clients may do so at the same time.
// With a *sql.DB the names can be locked at once. With a transaction they can be locked when it is committed;
// until then others that create one of them wait. In PostgreSQL above READ COMMITTED it fails with
// [ErrConflict] if another transaction has created one since this one's snapshot.
func (d Dialect) Create(ctx context.Context, db Execer, names ...string) error {
	return d.exec(ctx, db, "creating", createStatements, names)
}

// Remove deletes the rows of names, which the transaction must have locked exclusively, when the things that
// they stood for are gone. Transactions that wait for one of them get [ErrUnknown], or [ErrConflict], when
// this one commits.
func (d Dialect) Remove(ctx context.Context, tx Tx, names ...string) error {
	if err := d.check(ctx, tx, names); err != nil {
		return err
	}
	return d.exec(ctx, tx, "removing", removeStatements, names)
}

// exec runs a statement for each name, in the order of locks.
func (d Dialect) exec(ctx context.Context, db Execer, doing string, statements [SQLite + 1]string, names []string) error {
	if err := d.checkNames(names); err != nil {
		return err
	}
	for _, name := range inOrder(names) {
		if _, err := db.ExecContext(ctx, statements[d], d.key(name)); err != nil {
			return failed(doing, name, err)
		}
	}
	return nil
}

// key is a name as an argument: to MySQL hexadecimal digits. No conversion between character sets touches
// them, and a client library that writes arguments into the text cannot quote them wrongly, as it may a name
// on a connection in GBK.
func (d Dialect) key(name string) any {
	if d == MySQL {
		return hex.EncodeToString([]byte(name))
	}
	return name
}
