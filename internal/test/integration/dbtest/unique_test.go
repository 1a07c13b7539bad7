//go:build soak

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

var uniqueCases = []testCase{
	{"unique index", uniqueRace},
	{"unique index, first rolled back", uniqueRolledBack},
}

// insertFirst runs the statement of package optimistic's documentation, and reports
// whether this is the first.
func (d *database) insertFirst(ctx context.Context, q optimistic.Querier, job string, instant int64) (bool, error) {
	query := "INSERT INTO run (job, instant) VALUES (?, ?) ON CONFLICT DO NOTHING"
	if d.locks == txlock.MySQL {
		query = "INSERT IGNORE INTO run (job, instant) VALUES (?, ?)"
	}
	result, err := q.ExecContext(ctx, d.sql(query), job, instant)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// job is one that no other test has.
func (d *database) job(t *testing.T) string { return t.Name() }

// uniqueRace has many run one job at the same instants: each is run once.
func uniqueRace(t *testing.T, d *database) {
	ctx, job := within(t), d.job(t)
	var done [increments]atomic.Int64
	var at atomic.Int64
	together(t, func() error {
		instant := at.Add(1) % increments // each instant by as many as there are workers
		first := false
		err := optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) (err error) {
			first, err = d.insertFirst(ctx, tx, job, instant)
			return err
		})
		if err == nil && first {
			done[instant].Add(1)
		}
		return err
	})
	for instant := range done {
		if n := done[instant].Load(); n != 1 {
			t.Errorf("at instant %d it ran %d times", instant, n)
		}
	}
}

// uniqueRolledBack: if the first one fails, another can be first.
func uniqueRolledBack(t *testing.T, d *database) {
	ctx, job := within(t), d.job(t)
	failing := d.begin(t)
	if first, err := d.insertFirst(ctx, failing, job, 1); !first || err != nil {
		t.Fatalf("the first: %v, %v", first, err)
	}
	second := make(chan error, 1)
	go func() {
		second <- optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
			first, err := d.insertFirst(ctx, tx, job, 1)
			if err == nil && !first {
				err = errors.New("refused, though nobody has done it")
			}
			return err
		})
	}()
	d.awaitWaiters(t, 1)
	if err := failing.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if first, err := d.insertFirst(ctx, d, job, 1); first || err != nil {
		t.Errorf("the third: %v, %v", first, err)
	}
}
