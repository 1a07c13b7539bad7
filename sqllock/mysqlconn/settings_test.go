package mysqlconn

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestSettings: what a server, a database or a URL may set for its sessions.
func TestSettings(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "")
		exec(t, admin, "CREATE DATABASE IF NOT EXISTS worst CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci")
		isolation := isolationIn(t)
		sqltest.Settings(t, func(setting string) (driver.Driver, error) {
			u := server.URL()
			if setting == "database=worst" {
				u, setting = strings.Replace(u, "/test", "/worst", 1), "completion_type=1"
			}
			if db, found := strings.CutPrefix(setting, "pool "); found {
				return New(t.Context(), openDB(t, server, "?"+db), nil)
			}
			return openURL(t.Context(), u+"?"+setting)
		}, []string{
			"database=worst", "sql_mode=''", "sql_mode='ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'", "sql_mode='TRADITIONAL'",
			isolation + "='READ-UNCOMMITTED'", isolation + "='READ-COMMITTED'", isolation + "='SERIALIZABLE'",
			"completion_type=1", "completion_type=2", "innodb_lock_wait_timeout=1", "sql_safe_updates=1", "collation=utf8mb4_general_ci",
			"pool multiStatements=false", "pool multiStatements=true&interpolateParams=true&clientFoundRows=true",
		}, map[string]string{"autocommit=0": "autocommit", "transaction_read_only=1": "read"})
	})
}

// isolationIn returns what MariaDB and MySQL call a session's isolation.
func isolationIn(t *testing.T) string {
	if strings.HasSuffix(t.Name(), "/MySQL") {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

// TestBesideStep: see sqltest. At this isolation nothing is locked that does not say so.
func TestBesideStep(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		db := openDB(t, server, "?multiStatements=true&"+isolationIn(t)+"=%27READ-COMMITTED%27")
		d, err := New(t.Context(), db, nil)
		must(t, err)
		sqltest.BesideStep(t, d, db)

		sqltest.NewRow(t, together, func(split func(context.Context, *sql.Conn, []sqllock.Statement) error) driver.Driver {
			library := library
			library.Learn, library.Together = nil, split
			d, err := sqllock.New(t.Context(), db, sqllock.MySQL, library, nil)
			must(t, err)
			return d
		}, d)
	})
}
