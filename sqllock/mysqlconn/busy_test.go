//go:build soak

package mysqlconn

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// TestBusy: a busy client keeps its leases, though replies are late.
func TestBusy(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		proxy := chaos.StartProxy(t, server.Addr)
		d, err := openURL(t.Context(), strings.Replace(server.URL(), server.Addr, proxy.Addr, 1))
		if err != nil {
			t.Fatal(err)
		}
		proxy.Delay(chaos.ToClient, 20*time.Millisecond)
		sqltest.Busy(t, d)
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others.
func TestFullPool(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		open := func(connections int) (*sql.DB, driver.Driver) {
			db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
			db.SetMaxOpenConns(connections)
			d, err := New(t.Context(), db, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return db, d
		}
		t.Run("full", func(t *testing.T) {
			db, d := open(4)
			sqltest.FullPool(t, db, d, nil)
		})
		t.Run("full after an outage", func(t *testing.T) {
			admin := openDB(t, server, "")
			db, d := open(4)
			sqltest.FullPool(t, db, d, func() { killAll(t, admin) })
		})
		t.Run("given back", func(t *testing.T) {
			db, d := open(4)
			sqltest.GivenBack(t, db, d)
		})
		t.Run("one connection", func(t *testing.T) {
			db, d := open(1)
			sqltest.RenewalFirst(t, db, d)
		})
	})
}
