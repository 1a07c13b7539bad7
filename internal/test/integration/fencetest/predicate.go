package fencetest

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// predicate touches the account under a token and changes nothing but its
// marks.
func (b *bench) predicate(t *testing.T, tx fence.Tx, id int64, token driver.Token, mode driver.Mode) error {
	t.Helper()
	p, err := b.dialect.Predicate(token, mode, 2)
	if err != nil {
		return err
	}
	query := "UPDATE fencetest_account SET " + p.Set + " WHERE id = ? AND " + p.Where
	args := []any{p.Arg, id, p.Arg}
	if b.dialect == fence.Postgres {
		query = "UPDATE fencetest_account SET " + p.Set + " WHERE id = $1 AND " + p.Where
		args = []any{id, p.Arg}
	}
	result, err := tx.ExecContext(t.Context(), query, args...)
	if err != nil {
		return err
	}
	return p.Check(result)
}

// predicateAsGate offers tokens at random to a row with marks and to a Gate.
func predicateAsGate(t *testing.T, b *bench) {
	id, _ := b.account(t)
	asGate(t, func(token driver.Token, mode driver.Mode) error {
		return b.tx(t.Context(), func(tx *sql.Tx) error { return b.predicate(t, tx, id, token, mode) })
	}, func() (exclusive, shared driver.Token) {
		row := b.db.QueryRowContext(t.Context(), b.sql("SELECT exclusive_mark, shared_mark FROM fencetest_account WHERE id = ?"), id)
		if err := row.Scan(&exclusive, &shared); err != nil {
			t.Fatal(err)
		}
		return exclusive, shared
	})
}

// predicateWithoutRow must not pass for an admission, not even right after one
// on the same connection.
func predicateWithoutRow(t *testing.T, b *bench) {
	id, _ := b.account(t)
	err := b.tx(t.Context(), func(tx *sql.Tx) error {
		if err := b.predicate(t, tx, id, 5, driver.Exclusive); err != nil {
			t.Fatal(err)
		}
		return b.predicate(t, tx, -1, 5, driver.Exclusive)
	})
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("no such row: %v, want ErrStale", err)
	}
}
