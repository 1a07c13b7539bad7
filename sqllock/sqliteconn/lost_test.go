package sqliteconn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// TestLostMeanwhile: a batch of releases tells which hold was lost.
func TestLostMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	connector, err := sqlite.NewConnector(DSN(file))
	must(t, err)
	admin, err := sql.Open("sqlite", DSN(file))
	must(t, err)
	defer admin.Close()
	sqltest.LostMeanwhile(t, connector, func(db *sql.DB) (driver.Driver, error) { return New(t.Context(), db, nil) }, func(name string) {
		if _, err := admin.ExecContext(t.Context(), "UPDATE holdfast_locks SET expires = 1 WHERE name = ?", name); err != nil {
			t.Error(err)
		}
	})
}
