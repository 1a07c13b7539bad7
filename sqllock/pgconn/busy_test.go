//go:build soak

package pgconn

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestBusy: a busy client keeps its leases, though replies are late (P2).
func TestBusy(t *testing.T) {
	server := testserver.StartPostgres(t)
	proxy := chaos.StartProxy(t, server.Addr)
	busytest.Run(t, func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1))
		must(t, err)
		return locks
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others (P2).
func TestFullPool(t *testing.T) {
	server := testserver.StartPostgres(t)
	var log bytes.Buffer
	open := func(connections int) (*sql.DB, driver.Driver) {
		db := openDB(t, server)
		db.SetMaxOpenConns(connections)
		d, err := New(t.Context(), db, &sqllock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
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
		sqltest.FullPool(t, db, d, func() { exec(t, admin, endClients) })
	})
	t.Run("one connection", func(t *testing.T) {
		if log.Len() > 0 {
			t.Errorf("the log says %q", log.String())
		}
		_, d := open(1)
		if !strings.Contains(log.String(), "one connection") {
			t.Errorf("the log says nothing of a pool of one connection: %q", log.String())
		}
		sqltest.ManyAtOnce(t, d)
	})
}
