//go:build soak

package sqliteconn

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestReaderInTheWay: without a write-ahead log a reader, such as a backup, keeps writers
// from their commit. They wait for its end; who gives up first has certainly done nothing.
func TestReaderInTheWay(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(1)&_pragma=journal_mode(DELETE)"
	open := func() *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	d, err := New(t.Context(), open(), nil)
	must(t, err)
	defer d.Close()
	reader := open()
	read := func() *sql.Tx {
		t.Helper()
		for {
			tx, err := reader.Begin()
			must(t, err)
			var n int
			if err = tx.QueryRow("SELECT count(*) FROM holdfast_locks").Scan(&n); err == nil {
				return tx
			}
			tx.Rollback()
			if failure(err) != sqllock.Conflict { // a writer is at it
				t.Fatal(err)
			}
		}
	}
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}

	tx := read()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Try(ctx, request("hasty")); err == nil || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: Try while somebody reads all the time: %v", err)
	}
	done := make(chan struct{})
	var g driver.Grant
	go func() {
		defer close(done)
		if g, err = d.Try(t.Context(), request("patient")); err != nil {
			t.Errorf("Try while somebody reads for a moment: %v", err)
		}
	}()
	select {
	case <-done:
		t.Error("the reader is not in the way: nothing is tested")
	case <-time.After(50 * time.Millisecond):
	}
	must(t, tx.Rollback())
	<-done
	tx = read()
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context(), []driver.Grant{g})[0] }()
	time.Sleep(20 * time.Millisecond) // most likely the release is under way
	must(t, tx.Rollback())
	if err := <-released; err != nil {
		t.Errorf("P4: Release while somebody reads for a moment: %v", err)
	}
}
