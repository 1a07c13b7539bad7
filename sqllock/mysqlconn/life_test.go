package mysqlconn

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
		sqltest.Forgotten(t, db, func(longest time.Duration) driver.Driver {
			d, err := New(t.Context(), db, &sqllock.Options{MaxTTL: longest})
			must(t, err)
			return d
		})
	})
}
