// Package pgconn lets package sqllock keep locks in PostgreSQL through the client library pgx, and registers the
// URL schemes postgres and postgresql:
//
//	postgres://user:password@host:5432/database?sslmode=require
//	postgres://user:password@/database?host=/run/postgresql
//
// The second one is for a unix socket in that directory. The parameters hf.tables, hf.maxttl, hf.forget (go or
// wait) and hf.durable=no are Prefix, MaxTTL, Forget and Unlogged of sqllock.Options. All others are pgx's.
//
// Behind a pooler such as pgbouncer the driver prepares no statements, because a pooler that gives each transaction
// another connection may not know them there. Nor may notifications arrive, so waiters poll. The driver detects a pooler
// by itself, when it is opened.
//
// The files that sslrootcert, sslcert and sslkey name, and .pgpass, are read again for each connection of a URL's
// pool, and for the one that listens. While they cannot be read, because they are being replaced, their last content
// is used.
//
// Of several hosts the first that takes writes is used, for each connection anew:
//
//	postgres://user:password@a,b,c/database
//
// They are tried in their order. One that is silent has 2 s.
//
// When a server is demoted while connections to it stay open, the driver closes them, and connects to the new
// primary; the connection that listens follows within 20 s. A server that takes no writes is refused.
//
// The drivers of a process that connect in the same way share one connection besides their pools, on which they
// listen.
package pgconn

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func init() {
	driver.Register("postgres", open)
	driver.Register("postgresql", open)
}

// The pool of a URL: connections are opened as they are needed.
const (
	poolSize    = 16
	idleFor     = 5 * time.Minute
	dialTimeout = 5 * time.Second
	// dialEachTimeout is for each way into each of several hosts.
	dialEachTimeout = 2 * time.Second
)

// open opens the driver for a URL, with a pool of its own.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	db, now, o, err := pool(u)
	if err != nil {
		return nil, err
	}
	library := libraryFor(now)
	library.Idle, library.Close = poolSize, db.Close
	return sqllock.New(ctx, db, sqllock.Postgres, library, o)
}

// OpenPool returns a pool such as the driver has for a URL, and the prefix of its tables' names, for programs that
// read the database beside the driver. It makes no contact. The caller closes the pool.
func OpenPool(u *url.URL) (db *sql.DB, prefix string, err error) {
	db, _, o, err := pool(u)
	return db, o.Prefix, err
}

func pool(u *url.URL) (*sql.DB, configure, *sqllock.Options, error) {
	config, o, err := parse(u)
	if err != nil {
		return nil, nil, o, err
	}
	now := again(u, config)
	db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(func(ctx context.Context, config *pgx.ConnConfig) error {
		present, err := now(ctx)
		if err == nil {
			*config = *present
		}
		return err
	}))
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	db.SetConnMaxIdleTime(idleFor)
	return db, now, o, nil
}

// again returns how to connect to a URL, which it parses anew for each connection: pgx reads the files of certificates
// and passwords when it does so, and they are replaced before they expire. While they cannot be read, or do not belong
// together, the last configuration is used.
func again(u *url.URL, last *pgx.ConnConfig) configure {
	var mu sync.Mutex
	return func(context.Context) (*pgx.ConnConfig, error) {
		mu.Lock()
		defer mu.Unlock()
		if present, _, err := parse(u); err == nil {
			last = present
		}
		return last.Copy(), nil
	}
}

// parse understands a URL. Its errors do not show user or password.
func parse(u *url.URL) (*pgx.ConnConfig, *sqllock.Options, error) {
	o, query, err := sqllock.ParseURL(u, sqllock.Postgres)
	if err != nil {
		return nil, o, err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, o, errors.New("store URL is malformed: it looks like postgres://user:password@host:5432/database")
	}
	several := strings.Contains(u.Host+query.Get("host"), ",")
	if several && !query.Has("target_session_attrs") {
		query.Set("target_session_attrs", "read-write")
	}
	theirs := *u
	theirs.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus sign for itself
	config, err := pgx.ParseConfig(theirs.String())
	if err != nil {
		// pgx's own error may show the password.
		return nil, o, errors.New("pgx does not understand this URL, or one of its parameters: it looks like postgres://user:password@host:5432/database?sslmode=require")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = dialTimeout
		if several {
			config.ConnectTimeout = dialEachTimeout
		}
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "holdfast"
	}
	return config, o, nil
}

// New returns a driver over a pool of pgx's stdlib. The caller owns the pool and closes it after the driver. The
// driver keeps one of its connections for renewals: see package sqllock. It listens on a connection of its own, made as
// one that the pool has. Nil options are fine.
func New(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error) {
	return sqllock.New(ctx, db, sqllock.Postgres, libraryFor(asPool(db)), o)
}

// asPool returns how a connection of the pool was made.
func asPool(db *sql.DB) configure {
	return func(ctx context.Context) (config *pgx.ConnConfig, err error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		err = below(conn, func(own *pgx.Conn) error {
			config = own.Config()
			return nil
		})
		return config, err
	}
}
