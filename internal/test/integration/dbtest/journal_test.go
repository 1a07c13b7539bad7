//go:build soak

package dbtest

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/optimistic"
)

// TestCommitBehindReader: without a write-ahead log SQLite refuses a commit while somebody
// reads, and keeps the transaction, which its client library must then roll back. Retry runs
// it again, and the connection can still be used.
func TestCommitBehindReader(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(1)" // SQLite's default journal
	db, reader := open(t, "sqlite", dsn), open(t, "sqlite", dsn)
	if _, err := db.Exec("CREATE TABLE item (stock INTEGER NOT NULL); INSERT INTO item VALUES (10)"); err != nil {
		t.Fatal(err)
	}
	read, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var stock int
	if err := read.QueryRow("SELECT stock FROM item").Scan(&stock); err != nil {
		t.Fatal(err)
	}
	runs := 0
	err = optimistic.Retry(t.Context(), db, &optimistic.Options{Tries: 100, Pause: time.Millisecond, MaxPause: 5 * time.Millisecond}, func(tx *sql.Tx) error {
		if runs++; runs == 3 {
			if err := read.Rollback(); err != nil {
				t.Error(err)
			}
		}
		_, err := tx.Exec("UPDATE item SET stock = stock - 1")
		return err
	})
	if err != nil || runs < 3 {
		t.Errorf("after %d runs: %v", runs, err)
	}
	for _, pool := range []*sql.DB{db, reader} {
		tx, err := pool.Begin()
		if err != nil {
			t.Fatalf("the pool's next transaction: %v", err)
		}
		if err := tx.QueryRow("SELECT stock FROM item").Scan(&stock); err != nil || stock != 9 {
			t.Errorf("the stock is %d, %v", stock, err)
		}
		tx.Rollback()
	}
}
