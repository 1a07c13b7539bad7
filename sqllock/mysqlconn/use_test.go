package mysqlconn

import (
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestUse: a store stays in its database, whichever one an application has chosen on a connection of the pool.
func TestUse(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "?multiStatements=true")
		const theirs = "`the``ir-s`"
		exec(t, admin, "CREATE DATABASE "+theirs+"; USE "+theirs+"; "+sqllock.MySQL.Schema("")+"USE test")
		db := oneConn(openDB(t, server, ""))
		sqltest.Pending(t, db, overPool(t, db), openIn(t, server.URL()), true, func(conn *sql.Conn) {
			if _, err := conn.ExecContext(t.Context(), "USE "+theirs); err != nil {
				t.Error(err)
			}
		})
	})
}
