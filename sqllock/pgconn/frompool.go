package pgconn

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/sqllock"
)

// FromPool returns a driver over a pool of pgx. Nil options are fine.
//
// The drivers over a pool keep one of its connections for renewals, from the first request for a lock on
// until the last of these drivers is closed: see package sqllock. They listen on one more connection, which is not
// the pool's but made as the pool's are. So MaxConns is to be 2 or more. A pool of one connection has none to
// spare: there renewals wait for the request that is under way and for the application, and a warning is logged.
//
// The caller owns the pool and closes it after the driver: Close of a pgxpool.Pool waits until all connections are
// given back, and the driver gives that of renewals back when it is closed.
func FromPool(ctx context.Context, pool *pgxpool.Pool, o *sqllock.Options) (driver.Driver, error) {
	fresh := func(ctx context.Context) (*pgx.ConnConfig, error) { return nextConfigOf(ctx, pool) }
	config, err := fresh(ctx)
	if err != nil {
		return nil, ctxerr.Of(ctx, err)
	}
	library := libraryFor(listener{config, fresh})
	db := stdlib.OpenDBFromPool(pool) // closing it leaves the pool open
	library.Pool, library.Close = pool, db.Close
	library.Stats = func() sql.DBStats { return statsOf(pool) }
	if err := behindPooler(ctx, db, &library); err != nil {
		return nil, errors.Join(ctxerr.Of(ctx, &sqllock.OpenError{Err: err}), db.Close())
	}
	return sqllock.New(ctx, db, sqllock.Postgres, library, o)
}

// nextConfigOf returns the configuration that the pool would give its next connection.
func nextConfigOf(ctx context.Context, pool *pgxpool.Pool) (*pgx.ConnConfig, error) {
	settings := pool.Config()
	if settings.BeforeConnect == nil {
		return settings.ConnConfig, nil
	}
	return settings.ConnConfig, settings.BeforeConnect(ctx, settings.ConnConfig)
}

// statsOf returns what database/sql would say of the pool. The application's use counts too.
func statsOf(pool *pgxpool.Pool) sql.DBStats {
	s := pool.Stat()
	return sql.DBStats{
		MaxOpenConnections: int(s.MaxConns()), OpenConnections: int(s.TotalConns()),
		InUse: int(s.AcquiredConns() + s.ConstructingConns()), Idle: int(s.IdleConns()),
	}
}
