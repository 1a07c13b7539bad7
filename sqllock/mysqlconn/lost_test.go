package mysqlconn

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestLostMeanwhile: a batch of releases tells which hold was lost.
func TestLostMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "")
		for name, params := range map[string]string{"together": "?multiStatements=true", "one by one": ""} {
			t.Run(name, func(t *testing.T) {
				config, err := mysql.ParseDSN("root@tcp(" + server.Addr + ")/test" + params)
				must(t, err)
				connector, err := mysql.NewConnector(config)
				must(t, err)
				sqltest.LostMeanwhile(t, connector, func(db *sql.DB) (driver.Driver, error) { return New(t.Context(), db, nil) }, func(name string) {
					if _, err := admin.ExecContext(t.Context(), "UPDATE holdfast_locks SET expires = 1 WHERE name = ?", name); err != nil {
						t.Error(err)
					}
				})
			})
		}
	})
}
