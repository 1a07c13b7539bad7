//go:build soak

package fencetest

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the client

	"github.com/holdfastlock/holdfast/fence"
)

// TestSQLite runs the cases on a file that several connections use.
func TestSQLite(t *testing.T) {
	db := openSQLite(t)
	Run(t, db, fence.SQLite)
}

// openSQLite opens a new database: write-ahead log, so that readers and a
// writer work side by side, and a busy timeout, so that writers wait.
func openSQLite(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "fence.db")+
		"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	db.SetMaxOpenConns(4)
	return db
}
