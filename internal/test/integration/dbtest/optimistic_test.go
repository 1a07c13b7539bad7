//go:build soak

package dbtest

import (
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

var optimisticCases = []testCase{
	{"update", updateIncrements},
	{"read and write", writeIncrements},
	{"lost without", lostWithout},
	{"retry inside the transaction", retryInside},
	{"given up", givenUp},
	{"no row", noRow},
}

func (d *database) table() optimistic.Table {
	return optimistic.Table{Dialect: d.dialect, Name: "account", Key: "id", Columns: []string{"balance"}}
}

// together runs work by several goroutines, several times each.
func together(t *testing.T, work func() error) {
	t.Helper()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range increments {
				if err := work(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// updateIncrements increments one balance by Update.
func updateIncrements(t *testing.T, d *database) {
	id, _ := d.account(t)
	ctx := within(t)
	together(t, func() error {
		return d.table().Update(ctx, d.DB, id, d.patiently(), func(row optimistic.Row) ([]any, error) {
			var balance int64
			err := row.Scan(&balance)
			return []any{balance + 1}, err
		})
	})
	d.expectBalance(t, id, workers*increments)
}

// writeIncrements does it by Read and Write in a transaction at the level.
func writeIncrements(t *testing.T, d *database) {
	id, _ := d.account(t)
	ctx := within(t)
	together(t, func() error {
		return optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
			var balance int64
			version, err := d.table().Read(ctx, tx, id, &balance)
			if err != nil {
				return err
			}
			return d.table().Write(ctx, tx, id, version, balance+1)
		})
	})
	d.expectBalance(t, id, workers*increments)
}

// lostWithout shows the need for the version: without it the same two transactions lose an
// update, unless the database refuses one of them.
func lostWithout(t *testing.T, d *database) {
	if d.immediate || d.locks == txlock.MySQL && d.level == sql.LevelSerializable {
		return // the one waits for the other
	}
	id, _ := d.account(t)
	ctx := within(t)
	one, two := d.begin(t), d.begin(t)
	first, err1 := d.balance(ctx, one, id)
	second, err2 := d.balance(ctx, two, id)
	if err := errors.Join(err1, err2, d.setBalance(ctx, one, id, first+1), one.Commit()); err != nil {
		t.Fatal(err)
	}
	err := d.setBalance(ctx, two, id, second+1)
	if d.refuses() {
		if err == nil {
			t.Error("the database has not refused the second write")
		}
		return
	}
	if err := errors.Join(err, two.Commit()); err != nil {
		t.Fatal(err)
	}
	d.expectBalance(t, id, 1) // of two
}

// retryInside shows the trap: if reads see a snapshot, a conflict in a transaction stays one
// however often it is tried again there. Retry begins a new transaction.
func retryInside(t *testing.T, d *database) {
	if d.immediate || d.locks == txlock.MySQL && d.level == sql.LevelSerializable {
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

// givenUp conflicts every time: Update ends with ErrConflict, after the allowed tries.
func givenUp(t *testing.T, d *database) {
	id, _ := d.account(t)
	ctx := within(t)
	tries := 0
	err := d.table().Update(ctx, d.DB, id, &optimistic.Options{Tries: 4}, func(row optimistic.Row) ([]any, error) {
		tries++
		var balance int64
		err := row.Scan(&balance)
		return []any{balance + 1}, errors.Join(err, d.setBalance(ctx, d, id, balance+100))
	})
	if !errors.Is(err, optimistic.ErrConflict) || tries != 4 {
		t.Errorf("%d tries, %v; want 4 and ErrConflict", tries, err)
	}
	d.expectBalance(t, id, 400)
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
