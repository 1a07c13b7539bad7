// Package pgconn lets package sqllock keep locks in PostgreSQL through the client library pgx, and registers the
// URL schemes postgres and postgresql:
//
//	postgres://user:password@host:5432/database?sslmode=require
//	postgres://user:password@/database?host=/run/postgresql
//
// The second one is for a unix socket in that directory. The parameter hf.tables is what the tables' names begin
// with: see sqllock.Options. All others are pgx's.
//
// Behind a pooler such as pgbouncer the driver prepares no statements, because a pooler that gives each transaction
// another connection may not know them there. It detects a pooler by itself, when it is opened. Through such a
// pooler notifications do not arrive, so waiters poll.
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
// primary. A server that takes no writes is refused.
//
// The drivers of a process that connect in the same way share one connection besides their pools, on which they
// listen.
package pgconn

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
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
	db, settings, o, err := pool(u)
	if err != nil {
		return nil, err
	}
	library := libraryFor(settings.last)
	library.Listen = listener{settings.last, settings.fresh}.listen
	leave := library.Leave
	library.Leave = func(conn *sql.Conn) {
		leave(conn)
		db.SetMaxIdleConns(0) // the others lead there too
		db.SetMaxIdleConns(poolSize)
	}
	if err := behindPooler(ctx, db, &library); err != nil {
		return nil, errors.Join(ctxerr.Of(ctx, &sqllock.OpenError{Err: err}), db.Close())
	}
	library.Close = db.Close
	return sqllock.New(ctx, db, sqllock.Postgres, library, o)
}

// OpenPool returns a pool such as the driver has for a URL, and the prefix of its tables' names, for programs that
// read the database beside the driver. It makes no contact. The caller closes the pool.
func OpenPool(u *url.URL) (db *sql.DB, prefix string, err error) {
	db, _, o, err := pool(u)
	if err != nil {
		return nil, "", err
	}
	return db, cmp.Or(o.Prefix, sqllock.DefaultPrefix), nil
}

func pool(u *url.URL) (*sql.DB, *settings, *sqllock.Options, error) {
	config, o, err := parse(u)
	if err != nil {
		return nil, nil, nil, err
	}
	s := &settings{url: u, last: config}
	db := sql.OpenDB(s)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	db.SetConnMaxIdleTime(idleFor)
	return db, s, o, nil
}

// parse understands a URL. Its errors do not show user or password.
func parse(u *url.URL) (*pgx.ConnConfig, *sqllock.Options, error) {
	params, err := driver.Params(u, true, "hf.tables")
	if err == nil && params["hf.tables"] != "" {
		err = sqllock.CheckPrefix(params["hf.tables"])
	}
	if err != nil {
		return nil, nil, err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, nil, errors.New("store URL is malformed: it looks like postgres://user:password@host:5432/database")
	}
	theirs := *u
	query := theirs.Query()
	for key := range query {
		if strings.HasPrefix(key, "hf.") {
			query.Del(key)
		}
	}
	if err := checkSocket(query); err != nil {
		return nil, nil, err
	}
	several := strings.Contains(u.Host+query.Get("host"), ",")
	if err := aimAtPrimary(query, several); err != nil {
		return nil, nil, err
	}
	theirs.RawQuery = query.Encode()
	config, err := pgx.ParseConfig(theirs.String())
	if err != nil {
		// pgx's own error may show the password.
		return nil, nil, errors.New("pgx does not understand this URL, or one of its parameters: it looks like postgres://user:password@host:5432/database?sslmode=require")
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
	return config, &sqllock.Options{Prefix: params["hf.tables"]}, nil
}

// checkSocket refuses forms of other programs for a unix socket, which would otherwise lead to a server on this
// host's port 5432, or nowhere.
func checkSocket(query url.Values) error {
	const form = "the URL of a socket names its directory: postgres://user:password@/database?host=/run/postgresql"
	for _, other := range []string{"socket", "unix_socket", "unixSocket", "unixsocket", "unix"} {
		if query.Has(other) {
			return fmt.Errorf("URL parameter %q is not known: %s", other, form)
		}
	}
	for host := range strings.SplitSeq(query.Get("host"), ",") {
		if strings.Contains(host, "/") && !strings.HasPrefix(host, "/") || strings.Contains(host, "/.s.PGSQL.") {
			return errors.New("URL parameter host is neither a host nor a directory: " + form)
		}
	}
	return nil
}

// New returns a driver over a pool of pgx's stdlib. The caller owns the pool and closes it after the driver. The
// driver keeps one of its connections for renewals: see package sqllock. It listens on a connection of its own, made as
// the pool's are: when it cannot listen again as before, the driver makes the pool open a connection, and uses the
// configuration of this one. Nil options are fine.
func New(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error) {
	config, err := configOf(ctx, db)
	library := libraryFor(config)
	if err == nil {
		err = behindPooler(ctx, db, &library)
	}
	if err != nil {
		return nil, ctxerr.Of(ctx, err)
	}
	library.Listen = listener{config: config, fresh: func(ctx context.Context) (*pgx.ConnConfig, error) { return freshConfigOf(ctx, db) }}.listen
	return sqllock.New(ctx, db, sqllock.Postgres, library, o)
}

// configOf returns the configuration of a connection of the pool.
func configOf(ctx context.Context, db *sql.DB) (*pgx.ConnConfig, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return configOfConn(conn)
}

// freshConfigOf returns the configuration of a new connection, including changes by options such as
// stdlib.OptionBeforeConnect. It borrows all idle connections, so the next one is new, as long as that makes nobody
// wait.
func freshConfigOf(ctx context.Context, db *sql.DB) (config *pgx.ConnConfig, err error) {
	for range db.Stats().Idle + 1 {
		if s := db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
			break
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if config, err = configOfConn(conn); err != nil {
			return nil, err
		}
	}
	if config == nil {
		return nil, errors.New("all connections of the pool are in use")
	}
	return config, nil
}

// configOfConn returns the configuration of a connection.
func configOfConn(conn *sql.Conn) (config *pgx.ConnConfig, err error) {
	err = conn.Raw(func(c any) error {
		own, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the pool's driver is not pgx's stdlib: %T", c)
		}
		config = own.Conn().Config()
		return nil
	})
	return config, err
}

func libraryFor(config *pgx.ConnConfig) sqllock.Library {
	l := listener{config: config}
	return sqllock.Library{Failure: failure, Listen: l.listen, Together: together, Demoted: demoted, Pending: pending, Leave: l.leave}
}

// failure implements Failure of sqllock.Library.
func failure(err error) sqllock.Failure {
	if connecting := (*pgconn.ConnectError)(nil); errors.As(err, &connecting) {
		return sqllock.Refused
	}
	if pgconn.SafeToRetry(err) {
		return sqllock.Conflict
	}
	e := (*pgconn.PgError)(nil)
	if !errors.As(err, &e) {
		return sqllock.Unknown
	}
	switch e.Code {
	case "25006": // read-only transaction: a standby, or a server that was demoted
		return sqllock.Demoted
	case "40001", "40P01", "55P03", "25P03": // serialization failure, deadlock, lock not available; we stood still in a transaction
		return sqllock.Conflict
	case "40003", "57P01", "57P02", "57P05": // completion unknown, the end of the connection
		return sqllock.Unknown
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "", "08", "58", "XX": // connection, system, internal
		return sqllock.Unknown
	}
	return sqllock.Refused
}
