//go:build soak

package migrate_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast"
	hfmigrate "github.com/holdfastlock/holdfast/adapt/migrate"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var migrations = fstest.MapFS{
	"1_a.up.sql": {Data: []byte(`CREATE TABLE ran (at timestamptz, locks int)`)},
	"2_b.up.sql": {Data: []byte(`SELECT pg_sleep(0.2); INSERT INTO ran
		SELECT now(), count(*) FROM pg_locks WHERE locktype = 'advisory'`)},
}

// migrator returns a migrator behind a pooler in transaction mode.
func migrator(url string) (*migrate.Migrate, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // no prepared statements
	db := sql.OpenDB(hfmigrate.WithoutAdvisoryLocks(stdlib.GetConnector(*config)))
	database, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	if err != nil {
		return nil, err
	}
	source, err := iofs.New(migrations, ".")
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", source, "app", database)
}

// TestThreeAtOnce: three programs migrate at once, through pgbouncer in transaction mode.
func TestThreeAtOnce(t *testing.T) {
	server := testserver.StartPostgres(t)
	pooler := testserver.StartPgbouncer(t, server, "transaction")
	store := "file://" + t.TempDir()
	var all sync.WaitGroup
	for range 3 {
		locks, err := holdfast.Open(t.Context(), store)
		testserver.Must(t, err)
		defer locks.Close()
		all.Go(func() {
			err := hfmigrate.Up(t.Context(), locks.Mutex("migrations/app", nil), func() (*migrate.Migrate, error) {
				return migrator(pooler.URL("postgres"))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db, err := sql.Open("pgx", server.URL("postgres"))
	testserver.Must(t, err)
	defer db.Close()
	var ran, locks int
	if err := db.QueryRow("SELECT count(*), sum(locks) FROM ran").Scan(&ran, &locks); err != nil || ran != 1 {
		t.Errorf("the migration ran %d times (%v), want once", ran, err)
	}
	if locks != 0 {
		t.Errorf("there were %d advisory locks, want none", locks)
	}
}

// TestGracefulStop: when the lock is lost, golang-migrate stops after the migration that it runs.
func TestGracefulStop(t *testing.T) {
	server := testserver.StartPostgres(t)
	locks, err := holdfast.Open(t.Context(), "file://"+t.TempDir())
	testserver.Must(t, err)
	defer locks.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	errEnough := errors.New("enough")
	version := func(m *migrate.Migrate) error {
		cancel(errEnough)
		<-m.GracefulStop // Up would read it
		return migrate.ErrNoChange
	}
	open := func() (*migrate.Migrate, error) { return migrator(server.URL("postgres")) }
	err = hfmigrate.Do(ctx, locks.Mutex("migrations/app", nil), open, version)
	if !errors.Is(err, errEnough) {
		t.Errorf("stopped: %v, want the context's cause", err)
	}
	if err := hfmigrate.Do(t.Context(), locks.Mutex("migrations/app", nil), nil, version); err == nil {
		t.Error("no function is accepted")
	}
	for range 2 {
		if err := hfmigrate.Up(t.Context(), locks.Mutex("migrations/app", nil), open); err != nil {
			t.Errorf("Up: %v", err)
		}
	}
}
