//go:build soak

package dbtest

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

var optimisticCases = []testCase{
	{"increments", increment},
	{"retry inside the transaction", retryInside},
	{"no row", noRow},
}

func (d *database) table() optimistic.Table {
	return optimistic.Table{Dialect: d.dialect, Name: "account", Key: "id", Columns: []string{"balance"}}
}

// increment increments one balance by Read and Write in a transaction at the level, and by Update.
func increment(t *testing.T, d *database) {
	id, _ := d.account(t)
	ctx := within(t)
	crowd(t, func(worker int) error {
		var balance int64
		if worker%2 == 0 {
			return optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
				version, err := d.table().Read(ctx, tx, id, &balance)
				if err != nil {
					return err
				}
				return d.table().Write(ctx, tx, id, version, balance+1)
			})
		}
		return d.table().Update(ctx, d.DB, id, d.patiently(), func(row optimistic.Row) ([]any, error) {
			err := row.Scan(&balance)
			return []any{balance + 1}, err
		})
	})
	d.expectBalance(t, id, workers*increments)
}

// retryInside shows the trap: if reads see a snapshot, a conflict in a transaction stays one
// however often it is tried again there. Retry begins a new transaction.
func retryInside(t *testing.T, d *database) {
	if d.immediate || d.dialect == txlock.MySQL && d.level == sql.LevelSerializable {
		return // there nobody can write what another has read
	}
	id, _ := d.account(t)
	ctx := within(t)
	runs := 0
	err := optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
		runs++
		var balance int64
		version, err := d.table().Read(ctx, tx, id, &balance)
		if err != nil {
			return err
		}
		if runs > 1 {
			return d.table().Write(ctx, tx, id, version, balance+1)
		}
		// Another is faster, once.
		if err := d.setBalance(ctx, d, id, 10); err != nil {
			return err
		}
		for range 5 {
			err = d.table().Write(ctx, tx, id, version, balance+1)
			if !errors.Is(err, optimistic.ErrConflict) || d.refuses() {
				break // MariaDB would go on outside of any transaction
			}
			if version, err = d.table().Read(ctx, tx, id, &balance); err != nil {
				break // the database has ended the transaction
			}
			err = optimistic.ErrConflict
		}
		if d.snapshots() && err == nil {
			t.Error("a retry in the same transaction has succeeded: this level has no trap")
		}
		if !d.snapshots() && err != nil {
			t.Errorf("a retry in the same transaction, which reads anew: %v", err)
		}
		if err != nil {
			err = errors.Join(optimistic.ErrConflict, err)
		}
		return err
	})
	wantRuns := 1
	if d.snapshots() {
		wantRuns = 2
	}
	if err != nil || runs != wantRuns {
		t.Errorf("%d runs, %v; want %d", runs, err, wantRuns)
	}
	d.expectBalance(t, id, 11)
}

// noRow: reading says so, writing finds no version.
func noRow(t *testing.T, d *database) {
	ctx := within(t)
	var balance int64
	if _, err := d.table().Read(ctx, d, -1, &balance); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("Read: %v, want sql.ErrNoRows", err)
	}
	if err := d.table().Write(ctx, d, -1, 0, 1); !errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("Write: %v, want ErrConflict", err)
	}
	runs := 0
	if err := d.table().Update(ctx, d.DB, -1, nil, func(row optimistic.Row) ([]any, error) {
		runs++
		return nil, row.Scan(&balance)
	}); !errors.Is(err, sql.ErrNoRows) || runs != 1 {
		t.Errorf("Update: %v after %d runs, want sql.ErrNoRows after one", err, runs)
	}
}
