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
	"database/sql/driver"
	"errors"
	"strings"

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

// WithoutAdvisoryLocks returns a connector for sql.OpenDB whose connections do as if they had run
// the statements by which golang-migrate locks and unlocks a PostgreSQL database, and run all
// others. Use it for golang-migrate only, under a lock of Holdfast.
//
// The connector is that of pgx, stdlib.GetConnector, or of lib/pq. Through a pooler in transaction
// mode pgx must not prepare statements: set DefaultQueryExecMode to QueryExecModeExec.
func WithoutAdvisoryLocks(c driver.Connector) driver.Connector { return connector{c} }

type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn{inner}, nil
}

// conn forwards what golang-migrate needs: statements and transactions.
type conn struct{ driver.Conn }

func (c conn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	switch strings.TrimSpace(query) {
	case "SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)":
		return driver.RowsAffected(1), nil
	}
	if e, ok := c.Conn.(driver.ExecerContext); ok {
		return e.ExecContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c conn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Rows, error) {
	if q, ok := c.Conn.(driver.QueryerContext); ok {
		return q.QueryContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if b, ok := c.Conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, o)
	}
	//lint:ignore SA1019 drivers without contexts have nothing else
	return c.Conn.Begin()
}

// CheckNamedValue lets the connection convert arguments, such as pgx's.
func (c conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
