// Package fencetest checks the SQL guard of package fence on a real database:
// one call for each database, with whatever client opened it. It stands in a module
// of its own so that the guard itself needs no client.
package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/fence"
)

// Run runs every case on db, a scratch database of the dialect, at each level
// of isolation at which the dialect's guard is right. It drops and creates the
// tables holdfast_fence and fencetest_account. The pool must allow at least two
// connections.
func Run(t *testing.T, db *sql.DB, d fence.Dialect) {
	for _, level := range levels(d) {
		t.Run(strings.ReplaceAll(level.String(), " ", ""), func(t *testing.T) {
			b := &bench{db: db, dialect: d, level: level}
			b.setUp(t)
			for _, c := range []struct {
				name string
				run  func(*testing.T, *bench)
			}{
				{"admit as a gate does", admitAsGate},
				{"same token again", sameTokenAgain},
				{"names apart", namesApart},
				{"rolled back", rolledBack},
				{"committed although refused", committedAlthoughRefused},
				{"no transaction", noTransaction},
				{"predicate as a gate does", predicateAsGate},
				{"predicate without a row", predicateWithoutRow},
				{"paused between read and write", pausedWriter},
				{"two reads of a shared hold", pausedReader},
				{"two resources", twoResources},
				{"concurrent holders", concurrentHolders},
			} {
				t.Run(c.name, func(t *testing.T) { c.run(t, b) })
			}
			if d != fence.MySQL || level != sql.LevelSerializable {
				t.Run("guard after a read", func(t *testing.T) { guardAfterRead(t, b) })
			}
		})
	}
}

func levels(d fence.Dialect) []sql.IsolationLevel {
	if d == fence.SQLite {
		return []sql.IsolationLevel{sql.LevelDefault} // it has but one: serializable
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// bench is the database under test at one level of isolation.
type bench struct {
	db      *sql.DB
	dialect fence.Dialect
	level   sql.IsolationLevel
	ids     int64 // of accounts
}

func (b *bench) setUp(t *testing.T) {
	t.Helper()
	for _, ddl := range []string{
		"DROP TABLE IF EXISTS holdfast_fence",
		b.dialect.Schema(),
		b.dialect.Schema(), // again: this must do no harm
		"DROP TABLE IF EXISTS fencetest_account",
		"CREATE TABLE fencetest_account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, " + fence.Columns + ")",
	} {
		if _, err := b.db.ExecContext(t.Context(), ddl); err != nil {
			t.Fatalf("%s: %v", ddl, err)
		}
	}
}

// sql numbers the placeholders where the dialect wants that.
func (b *bench) sql(query string) string {
	if b.dialect != fence.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// tx runs work in a transaction: committed if it returns nil, else rolled back.
func (b *bench) tx(ctx context.Context, work func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: b.level})
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// account makes a row with a balance of 0 and returns its id and the resource
// name that stands for it.
func (b *bench) account(t *testing.T) (id int64, resource string) {
	t.Helper()
	b.ids++
	id = b.ids
	if _, err := b.db.ExecContext(t.Context(), b.sql("INSERT INTO fencetest_account (id, balance) VALUES (?, 0)"), id); err != nil {
		t.Fatal(err)
	}
	return id, fmt.Sprintf("fencetest/account/%d", id)
}

func (b *bench) balance(ctx context.Context, tx fence.Tx, id int64) (n int64, err error) {
	err = tx.QueryRowContext(ctx, b.sql("SELECT balance FROM fencetest_account WHERE id = ?"), id).Scan(&n)
	return n, err
}

func (b *bench) setBalance(ctx context.Context, tx fence.Tx, id, n int64) error {
	_, err := tx.ExecContext(ctx, b.sql("UPDATE fencetest_account SET balance = ? WHERE id = ?"), n, id)
	return err
}
