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
	_, err := db.Exec("CREATE TABLE item (stock INTEGER NOT NULL); INSERT INTO item VALUES (10)")
	must(t, err)
	read, err := reader.Begin()
	must(t, err)
	var stock int
	must(t, read.QueryRow("SELECT stock FROM item").Scan(&stock))
	runs := 0
	err = optimistic.Retry(t.Context(), db, &optimistic.Options{Tries: 100, Pause: time.Millisecond, MaxPause: 5 * time.Millisecond}, func(tx *sql.Tx) error {
		if runs++; runs == 3 {
			read.Rollback()
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
