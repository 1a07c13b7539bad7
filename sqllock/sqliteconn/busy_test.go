package sqliteconn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// TestBusy: a busy client keeps its leases, though there is one writer at a time.
func TestBusy(t *testing.T) {
	d, err := openURL(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	sqltest.Busy(t, d)
}

// TestFullPool: renewals and releases have a connection, whoever has the others.
func TestFullPool(t *testing.T) {
	open := func(t *testing.T, connections int) (*sql.DB, driver.Driver) {
		db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
		db.SetMaxOpenConns(connections)
		d, err := New(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return db, d
	}
	t.Run("full", func(t *testing.T) {
		db, d := open(t, 4)
		sqltest.FullPool(t, db, d)
	})
	t.Run("one connection", func(t *testing.T) {
		db, d := open(t, 1)
		sqltest.RenewalFirst(t, db, d)
	})
}
