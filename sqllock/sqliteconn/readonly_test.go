package sqliteconn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// TestReadOnlyConnection: a connection that takes no writes is left, and another one serves.
func TestReadOnlyConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", DSN(file))
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	other := dial(t, file, nil)
	defer other.Close()
	sqltest.Pending(t, db, d, other, true, func(conn *sql.Conn) {
		if _, err := conn.ExecContext(t.Context(), "PRAGMA query_only = 1"); err != nil {
			t.Error(err)
		}
	})
}
