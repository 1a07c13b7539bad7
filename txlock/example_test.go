package txlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/txlock"
)

// A move between accounts whose names were created with them. Both are locked in one
// call, so two moves in opposite directions cannot deadlock.
func ExampleLock() {
	move := func(ctx context.Context, db *sql.DB, from, to string, amount int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if err := txlock.Lock(ctx, txlock.Postgres, tx, "account/"+from, "account/"+to); err != nil {
			return err // may be txlock.ErrConflict: then all of it may be run again
		}
		var balance int
		if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = $1", from).Scan(&balance); err != nil {
			return err
		}
		if balance < amount {
			return errors.New("not enough money")
		}
		const add = "UPDATE account SET balance = balance + $1 WHERE id = $2"
		if _, err := tx.ExecContext(ctx, add, -amount, from); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, add, amount, to); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = move
}

// A worker that takes up to three jobs which no other has at the moment.
func ExampleLockFree() {
	work := func(ctx context.Context, db *sql.DB, due []string, do func(*sql.Tx, string) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		mine, err := txlock.LockFree(ctx, txlock.MySQL, tx, 3, due...)
		if err != nil {
			return err
		}
		for _, job := range mine {
			if err := do(tx, job); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	_ = work
}

// The statement that creates the table of names belongs among the migrations.
func ExampleSchema() {
	fmt.Println(txlock.Schema(txlock.SQLite))
	// Output:
	// CREATE TABLE IF NOT EXISTS holdfast_txlock (name TEXT NOT NULL PRIMARY KEY, turn BIGINT NOT NULL) WITHOUT ROWID
}
