package pgconn

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// FromPool returns a driver over a pool of pgx. Nil options are fine.
//
// The drivers over a pool keep one of its connections for renewals until the last of them is closed: see package
// sqllock. They listen on one more connection, which is not
// the pool's but made as the pool's are. So MaxConns is to be 2 or more. A pool of one connection has none to
// spare: there renewals wait for the request that is under way and for the application, and a warning is logged.
//
// The caller owns the pool and closes it after the driver: Close of a pgxpool.Pool waits until all connections are
// given back, and the driver gives that of renewals back when it is closed.
func FromPool(ctx context.Context, pool *pgxpool.Pool, o *sqllock.Options) (driver.Driver, error) {
	library := libraryFor(func(ctx context.Context) (*pgx.ConnConfig, error) {
		next := pool.Config()
		if next.BeforeConnect == nil {
			return next.ConnConfig, nil
		}
		return next.ConnConfig, next.BeforeConnect(ctx, next.ConnConfig)
	})
	db := stdlib.OpenDBFromPool(pool) // closing it leaves the pool open
	library.Pool, library.Close = pool, db.Close
	library.Stats = func() sql.DBStats { return statsOf(pool) }
	return sqllock.New(ctx, db, sqllock.Postgres, library, o)
}

// statsOf returns what database/sql would say of the pool. The application's use counts too.
func statsOf(pool *pgxpool.Pool) sql.DBStats {
	s := pool.Stat()
	return sql.DBStats{MaxOpenConnections: int(s.MaxConns()), InUse: int(s.AcquiredConns() + s.ConstructingConns())}
}
