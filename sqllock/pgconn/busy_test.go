//go:build soak

package pgconn

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// TestBusy: a busy client keeps its leases, though replies are late.
func TestBusy(t *testing.T) {
	server := testserver.StartPostgres(t)
	proxy := chaos.StartProxy(t, server.Addr)
	d, err := openURL(t.Context(), strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Delay(chaos.ToClient, 20*time.Millisecond)
	sqltest.Busy(t, d)
}

// TestFullPool: renewals and releases have a connection even if an application has all others.
func TestFullPool(t *testing.T) {
	server := testserver.StartPostgres(t)
	var log bytes.Buffer
	open := func(connections int) (*sql.DB, driver.Driver) {
		db := openDB(t, server)
		db.SetMaxOpenConns(connections)
		d, err := New(t.Context(), db, &sqllock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
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
		admin := openDB(t, server)
		db, d := open(4)
		sqltest.FullPool(t, db, d, func() {
			exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
		})
	})
	t.Run("given back", func(t *testing.T) {
		db, d := open(4)
		sqltest.GivenBack(t, db, d)
	})
	t.Run("one connection", func(t *testing.T) {
		if log.Len() > 0 {
			t.Errorf("the log says %q", log.String())
		}
		db, d := open(1)
		if !strings.Contains(log.String(), "one connection") {
			t.Errorf("the log says nothing of a pool of one connection: %q", log.String())
		}
		sqltest.RenewalFirst(t, db, d)
	})
	t.Run("few connections", func(t *testing.T) {
		admin := openDB(t, server)
		exec(t, admin, "CREATE ROLE few LOGIN CONNECTION LIMIT 2") // one listens
		exec(t, admin, "GRANT ALL ON SCHEMA public TO few")
		d, err := openURL(t.Context(), strings.Replace(server.URL("postgres"), "postgres@", "few@", 1)+"&hf.tables=few")
		if err != nil {
			t.Fatal(err)
		}
		sqltest.FewConnections(t, d)
	})
}
