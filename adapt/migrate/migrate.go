// Package migrate runs golang-migrate under a lock, also through pgbouncer in transaction mode.
//
//	lock := locks.Mutex("migrations/app", nil)
//	err := hfmigrate.Up(ctx, lock, func() (*migrate.Migrate, error) {
//		db := sql.OpenDB(hfmigrate.WithoutAdvisoryLocks(connector))
//		driver, err := pgx.WithInstance(db, &pgx.Config{})
//		if err != nil {
//			return nil, err
//		}
//		return migrate.NewWithInstance("iofs", source, "app", driver)
//	})
//
// Golang-migrate locks a PostgreSQL database by pg_advisory_lock, which belongs to a session. A
// pooler in transaction mode may run the unlock in another session than the lock: then the lock is
// never freed, and each later migration fails with "can't acquire database lock".
// WithoutAdvisoryLocks keeps those two statements away from the database, because the lock around
// them is Holdfast's. Behind such a pooler pgx must not prepare statements either: its connector needs
// DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol.
package migrate

import (
	"context"
	"errors"

	"github.com/golang-migrate/migrate/v4"

	"github.com/holdfastlock/holdfast"
)

// Up waits for the lock, makes the migrator, applies all migrations, and closes it. If there is
// nothing to apply that is no error.
//
// If the context ends or the lock is lost, golang-migrate stops after the migration that it runs:
// it cannot stop one in the middle. The error then tells it: that of the context, or a
// *holdfast.LostError.
func Up(ctx context.Context, lock *holdfast.Lock, open func() (*migrate.Migrate, error)) error {
	return Do(ctx, lock, open, (*migrate.Migrate).Up)
}

// Do is Up for another step, such as one that calls Migrate or Steps of the migrator.
func Do(
	ctx context.Context, lock *holdfast.Lock,
	open func() (*migrate.Migrate, error), step func(*migrate.Migrate) error,
) error {
	if open == nil || step == nil {
		return errors.New("migrate: a function is nil")
	}
	return lock.Do(ctx, func(ctx context.Context, _ *holdfast.Lease) (err error) {
		m, err := open()
		if err != nil {
			return err
		}
		defer func() {
			source, database := m.Close()
			err = errors.Join(err, source, database)
		}()
		stop := context.AfterFunc(ctx, func() {
			select {
			case m.GracefulStop <- true:
			default: // it has been told before
			}
		})
		defer stop()
		if err = step(m); errors.Is(err, migrate.ErrNoChange) {
			err = nil
		}
		if err == nil {
			err = context.Cause(ctx) // it has stopped before its end, and says nothing
		}
		return err
	})
}
