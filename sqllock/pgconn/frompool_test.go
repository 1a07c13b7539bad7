package pgconn

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestFromPool: drivers over a pool of pgx, which an application shares.
func TestFromPool(t *testing.T) {
	server := shared(t)
	admin := openDB(t, server)
	open := func(t *testing.T, connections int32) (*sharedPool, driver.Driver) {
		t.Helper()
		p := openPgxPool(t, server, connections)
		return p, p.open(t, nil)
	}
	for name, connections := range map[string]int32{"full": 4, "full, of two connections": 2} {
		t.Run(name, func(t *testing.T) {
			p, d := open(t, connections)
			sqltest.FullPool(t, p, d, nil)
		})
	}
	t.Run("full after an outage", func(t *testing.T) {
		p, d := open(t, 4)
		sqltest.FullPool(t, p, d, func() {
			exec(t, admin, endClients)
		})
	})
	t.Run("one connection", func(t *testing.T) {
		var log bytes.Buffer
		p := openPgxPool(t, server, 1)
		d := p.open(t, &sqllock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if !strings.Contains(log.String(), "one connection") {
			t.Errorf("the log says nothing of a pool of one connection: %q", log.String())
		}
		sqltest.ManyAtOnce(t, d)
	})
	t.Run("shared by drivers", func(t *testing.T) { onePool(t, openPgxPool(t, server, 4)) })
	t.Run("closed", func(t *testing.T) {
		p := openPgxPool(t, server, 2)
		p.Close()
		if d, err := FromPool(t.Context(), p.Pool, nil); err == nil || !strings.Contains(err.Error(), "closed pool") {
			t.Errorf("FromPool of a closed pool returned %v, %v", d, err)
		}
	})
	t.Run("password of each connection", func(t *testing.T) { beforeConnect(t, server) })
}

// onePool: two drivers over a pool reserve one connection, and the last of them gives it back.
func onePool(t *testing.T, p *sharedPool) {
	one, two := p.open(t, nil), p.open(t, nil)
	for name, d := range map[string]driver.Driver{"one": one, "two": two} {
		if _, err := d.Try(t.Context(), driver.Request{Name: name, Owner: name, TTL: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.Stat().AcquiredConns(); n != 1 {
		t.Errorf("two drivers keep %d connections of a pool, not one", n)
	}
	must(t, one.Close())
	if _, err := two.Try(t.Context(), driver.Request{Name: "three", Owner: "two", TTL: 30 * time.Second}); err != nil {
		t.Errorf("the pool was closed with the first of two drivers: %v", err)
	}
	must(t, two.Close())
	if n := p.Stat().AcquiredConns(); n != 0 {
		t.Errorf("P9: closed drivers keep %d connections of the caller's pool", n)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("the caller's pool was closed with its drivers: %v", err)
	}
}

// beforeConnect: the connection that listens logs in as the pool's do, by BeforeConnect.
func beforeConnect(t *testing.T, server *testserver.Postgres) {
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	must(t, err)
	config.ConnConfig.User = "nobody"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User = "postgres"
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	d, err := FromPool(t.Context(), pool, nil)
	must(t, err)
	awaitListening(t)
	must(t, d.Close())
}

// sharedPool is a pool of pgx, and what an application does with it.
type sharedPool struct {
	*pgxpool.Pool
	db *sql.DB // over it
}

func openPgxPool(t *testing.T, server *testserver.Postgres, connections int32) *sharedPool {
	t.Helper()
	config, err := pgxpool.ParseConfig(server.URL("postgres"))
	must(t, err)
	p := &sharedPool{}
	config.MaxConns = connections
	if p.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.db = stdlib.OpenDBFromPool(p.Pool)
	t.Cleanup(func() { p.db.Close() })
	return p
}

// open returns a driver over the pool.
func (p *sharedPool) open(t *testing.T, o *sqllock.Options) driver.Driver {
	t.Helper()
	d, err := FromPool(t.Context(), p.Pool, o)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// Conn takes a connection for the application.
func (p *sharedPool) Conn(ctx context.Context) (*sql.Conn, error) { return p.db.Conn(ctx) }

// Stats implements sqltest.Pool.
func (p *sharedPool) Stats() sql.DBStats { return statsOf(p.Pool) }
