package pgconn

import (
	"context"
	"database/sql"
	"sync"

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
	library.Stats = func() sql.DBStats { return statsOf(pool) }
	db, leave := joinPool(pool)
	library.Close = leave
	if err := behindPooler(ctx, db, &library); err != nil {
		leave()
		return nil, ctxerr.Of(ctx, &sqllock.OpenError{Err: err})
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

// overPool is a *sql.DB over a pool of pgx, which all drivers over the pool share: so there is one
// connection.
type overPool struct {
	db    *sql.DB
	users int
}

var overPools = struct {
	sync.Mutex
	m map[*pgxpool.Pool]*overPool
}{m: map[*pgxpool.Pool]*overPool{}}

// joinPool returns the *sql.DB over a pool, until leave is called.
func joinPool(pool *pgxpool.Pool) (db *sql.DB, leave func() error) {
	overPools.Lock()
	defer overPools.Unlock()
	p := overPools.m[pool]
	if p == nil {
		p = &overPool{db: stdlib.OpenDBFromPool(pool)}
		overPools.m[pool] = p
	}
	p.users++
	return p.db, sync.OnceValue(func() error {
		overPools.Lock()
		defer overPools.Unlock()
		if p.users--; p.users > 0 {
			return nil
		}
		delete(overPools.m, pool)
		return p.db.Close() // the pool stays open
	})
}
