//go:build soak

package goose

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// migrations would run twice without a lock: the second INSERT is counted below.
var migrations = fstest.MapFS{"00001_a.sql": {Data: []byte(`-- +goose Up
CREATE TABLE IF NOT EXISTS ran (at timestamptz);
SELECT pg_sleep(0.2);
INSERT INTO ran VALUES (now());
`)}}

// migrate migrates the database as a program of its own would do.
func migrate(ctx context.Context, store, database string) error {
	locks, err := holdfast.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := open(database)
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
		goose.WithLocker(NewLocker(locks.Mutex("migrations/app", nil))))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// open opens a database behind a pooler in transaction mode, which knows no prepared statements.
func open(url string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return stdlib.OpenDB(*config), nil
}

// TestThreeAtOnce: three programs migrate at once, through pgbouncer in transaction mode.
func TestThreeAtOnce(t *testing.T) {
	server := testserver.StartPostgres(t)
	pooler := testserver.StartPgbouncer(t, server, "transaction")
	store := "file://" + t.TempDir()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := migrate(t.Context(), store, pooler.URL("postgres")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db, err := open(server.URL("postgres"))
	testserver.Must(t, err)
	defer db.Close()
	var ran int
	if err := db.QueryRow("SELECT count(*) FROM ran").Scan(&ran); err != nil || ran != 1 {
		t.Errorf("the migration ran %d times (%v), want once", ran, err)
	}
}

func TestLocker(t *testing.T) {
	locks, err := holdfast.Open(t.Context(), "file://"+t.TempDir())
	testserver.Must(t, err)
	defer locks.Close()
	mutex := locks.Mutex("migrations/app", nil)
	l := NewLocker(mutex)
	if err := l.Unlock(t.Context(), nil); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("Unlock before Lock: %v", err)
	}
	testserver.Must(t, l.Lock(t.Context(), nil))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := NewLocker(mutex).Lock(short, nil); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a second locker gets %v, want ErrHeld", err)
	}
	info, err := locks.Inspect(t.Context(), "migrations/app")
	if err != nil || len(info.Holders) != 1 {
		t.Fatal(info, err)
	}
	testserver.Must(t, locks.Break(t.Context(), "migrations/app", info.Holders[0].Token))
	if err := l.Lock(t.Context(), nil); err == nil {
		t.Error("a second Lock of one locker, whose first was lost, is accepted")
	}
	if err := l.Unlock(t.Context(), nil); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Unlock after a break: %v, want ErrLost", err)
	}
	lease, err := mutex.TryAcquire(t.Context())
	testserver.Must(t, err)
	lease.Release()
}
