//go:build soak

package dbtest

import (
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/txlock"
)

// TestNamesInGBK: a name is no SQL on a connection in GBK, where a quote that the client library has
// escaped may end the text all the same.
func TestNamesInGBK(t *testing.T) {
	for what, server := range map[string]*testserver.MySQL{"MariaDB": testserver.StartMariaDB(t), "MySQL": testserver.StartMySQL(t)} {
		t.Run(what, func(t *testing.T) {
			db := open(t, "mysql", "root@tcp("+server.Addr+")/test?interpolateParams=true&multiStatements=true&charset=gbk")
			names := []string{"日'; CREATE TABLE owned (x INT); -- ", "日"}
			exec := func(text string) {
				if _, err := db.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			exec(txlock.MySQL.Schema())
			exec(fence.MySQL.Schema())
			if err := txlock.MySQL.Create(t.Context(), db, names...); err != nil {
				t.Error(err)
			}
			inTx(t, db, func(tx *sql.Tx) error { return txlock.MySQL.Lock(t.Context(), tx, names...) })
			inTx(t, db, func(tx *sql.Tx) error { return txlock.MySQL.LockShared(t.Context(), tx, names...) })
			inTx(t, db, func(tx *sql.Tx) error { return txlock.MySQL.TryLock(t.Context(), tx, names...) })
			inTx(t, db, func(tx *sql.Tx) error {
				if err := txlock.MySQL.Lock(t.Context(), tx, names...); err != nil {
					return err
				}
				return txlock.MySQL.Remove(t.Context(), tx, names...)
			})
			for _, name := range names {
				inTx(t, db, func(tx *sql.Tx) error {
					return fence.MySQL.Admit(t.Context(), tx, name, 7, driver.Exclusive)
				})
			}
			var owned, resources int
			if err := db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM information_schema.tables WHERE table_name = 'owned'),"+
				" (SELECT count(*) FROM holdfast_fence WHERE resource = x'E697A5')").Scan(&owned, &resources); err != nil {
				t.Fatal(err)
			}
			if owned > 0 {
				t.Error("a name was run as SQL")
			}
			if resources != 1 {
				t.Error("a resource is not stored by its bytes")
			}
		})
	}
}

func inTx(t *testing.T, db *sql.DB, f func(*sql.Tx) error) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f(tx); err != nil {
		tx.Rollback()
		t.Error(err)
	} else if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}
