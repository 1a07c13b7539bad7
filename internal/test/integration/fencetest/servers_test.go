//go:build soak

package fencetest

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the client of PostgreSQL

	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestPostgres runs the cases on a PostgreSQL server.
func TestPostgres(t *testing.T) {
	server := testserver.StartPostgres(t, "deadlock_timeout=50ms")
	Run(t, openServer(t, "pgx", server.URL("postgres")), fence.Postgres)
}

// TestMariaDB runs the cases on a MariaDB server, with both ways to count rows.
func TestMariaDB(t *testing.T) { onMySQL(t, testserver.StartMariaDB(t)) }

// TestMySQL does the same on MySQL 8.
func TestMySQL(t *testing.T) { onMySQL(t, testserver.StartMySQL(t)) }

func onMySQL(t *testing.T, server *testserver.MySQL) {
	for _, found := range []bool{false, true} {
		t.Run(map[bool]string{false: "changed rows", true: "found rows"}[found], func(t *testing.T) {
			config := mysql.NewConfig()
			config.Net, config.Addr, config.User, config.DBName = "tcp", server.Addr, "root", "test"
			config.Logger = &mysql.NopLogger{}
			config.ClientFoundRows = found
			Run(t, openServer(t, "mysql", config.FormatDSN()), fence.MySQL)
		})
	}
}

func openServer(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db
}
