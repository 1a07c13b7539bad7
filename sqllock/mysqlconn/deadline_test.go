//go:build soak

package mysqlconn

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestDeadlines: an ended context is told as such, also by an attempt to connect.
func TestDeadlines(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		proxy := chaos.StartProxy(t, server.Addr)
		db, err := sql.Open("mysql", "root@tcp("+proxy.Addr+")/test?interpolateParams=true&multiStatements=true")
		must(t, err)
		t.Cleanup(func() { db.Close() })
		sqltest.Deadlines(t, proxy, db, func(ctx context.Context, db *sql.DB) (driver.Driver, error) { return New(ctx, db, nil) })
	})
}
