package sqliteconn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// TestPending: a hold that is not committed is never reported as held.
func TestPending(t *testing.T) {
	for _, begin := range []string{"BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT theirs"} {
		t.Run(begin, func(t *testing.T) {
			dsn := DSN(filepath.Join(t.TempDir(), "locks.db"))
			open := func(connections int) (*sql.DB, driver.Driver) {
				db, err := sql.Open("sqlite", dsn)
				must(t, err)
				t.Cleanup(func() { db.Close() })
				db.SetMaxOpenConns(connections)
				d, err := New(t.Context(), db, nil)
				must(t, err)
				t.Cleanup(func() { d.Close() })
				return db, d
			}
			db, d := open(1)
			_, other := open(2)
			sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) {
				if _, err := conn.ExecContext(t.Context(), begin); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
