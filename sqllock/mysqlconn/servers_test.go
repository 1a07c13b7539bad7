package mysqlconn

import (
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var (
	must    = testserver.Must // ends the test at an error
	exec    = sqltest.Exec
	openURL = sqltest.OpenURL
)

// onEach runs a test on MariaDB and on MySQL.
func onEach(t *testing.T, test func(*testing.T, *testserver.MySQL)) {
	t.Run("MariaDB", func(t *testing.T) { test(t, shared(t)) })
	if testserver.Soak {
		t.Run("MySQL", func(t *testing.T) { test(t, testserver.StartMySQL(t)) })
	}
}

// openDB returns a pool of its own.
func openDB(t *testing.T, server *testserver.MySQL, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+server.Addr+")/test"+params)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// killAll ends all connections but the administrator's, and returns how many there
// were.
func killAll(t *testing.T, admin *sql.DB) int {
	t.Helper()
	rows, err := admin.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")
	must(t, err)
	var ids []int64
	for rows.Next() {
		var id int64
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	rows.Close()
	for _, id := range ids {
		for there := 1; there > 0; { // MySQL takes a moment
			admin.ExecContext(t.Context(), "KILL ?", id) // fails if it has ended
			must(t, admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id).Scan(&there))
		}
	}
	return len(ids)
}

// shared returns the MariaDB server that the tests of the gate share, without tables.
func shared(t testing.TB) *testserver.MySQL {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.MySQL { return testserver.StartMariaDB(t) },
		func(t testing.TB, server *testserver.MySQL) {
			db, err := sql.Open("mysql", "root@tcp("+server.Addr+")/")
			must(t, err)
			defer db.Close()
			for _, statement := range []string{"DROP DATABASE test", "CREATE DATABASE test"} {
				exec(t, db, statement)
			}
		})
}
