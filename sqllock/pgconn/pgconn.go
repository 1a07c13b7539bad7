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
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
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
	db, settings, prefix, err := pool(u)
	if err != nil {
		return nil, err
	}
	library := libraryFor(listener{settings.last, settings.fresh})
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
	return sqllock.New(ctx, db, sqllock.Postgres, library, &sqllock.Options{Prefix: prefix})
}

// OpenPool returns a pool such as the driver has for a URL, and the prefix of its tables' names, for programs that
// read the database beside the driver. It makes no contact. The caller closes the pool.
func OpenPool(u *url.URL) (db *sql.DB, prefix string, err error) {
	db, _, prefix, err = pool(u)
	return db, prefix, err
}

func pool(u *url.URL) (*sql.DB, *settings, string, error) {
	config, prefix, err := parse(u)
	if err != nil {
		return nil, nil, "", err
	}
	s := &settings{url: u, last: config}
	db := sql.OpenDB(s)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	db.SetConnMaxIdleTime(idleFor)
	return db, s, prefix, nil
}

// parse understands a URL. Its errors do not show user or password.
func parse(u *url.URL) (*pgx.ConnConfig, string, error) {
	prefix, query, err := sqllock.ParseURL(u, true)
	if err != nil {
		return nil, "", err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, "", errors.New("store URL is malformed: it looks like postgres://user:password@host:5432/database")
	}
	if err := checkSocket(query); err != nil {
		return nil, "", err
	}
	several := strings.Contains(u.Host+query.Get("host"), ",")
	if err := aimAtPrimary(query, several); err != nil {
		return nil, "", err
	}
	theirs := *u
	theirs.RawQuery = query.Encode()
	config, err := pgx.ParseConfig(theirs.String())
	if err != nil {
		// pgx's own error may show the password.
		return nil, "", errors.New("pgx does not understand this URL, or one of its parameters: it looks like postgres://user:password@host:5432/database?sslmode=require")
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
	return config, prefix, nil
}

// attributes is pgx's parameter that says which of several servers to use.
const attributes = "target_session_attrs"

// aimAtPrimary makes a URL's connections lead to servers that take writes, if it has several hosts. It refuses what
// would lead elsewhere.
func aimAtPrimary(query url.Values, several bool) error {
	switch value := query.Get(attributes); value {
	case "read-write", "primary":
	case "", "any":
		if several && value == "any" {
			return fmt.Errorf("URL parameter %s is any: with several hosts read-write is right, the default", attributes)
		}
		if several {
			query.Set(attributes, "read-write")
		}
	case "standby", "read-only", "prefer-standby":
		return fmt.Errorf("URL parameter %s is %s: locks are written, so read-write is right", attributes, value)
	}
	return nil // pgx refuses the rest
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
	fresh := func(ctx context.Context) (*pgx.ConnConfig, error) { return freshConfigOf(ctx, db) }
	library := libraryFor(listener{config, fresh})
	if err == nil {
		err = behindPooler(ctx, db, &library)
	}
	if err != nil {
		return nil, ctxerr.Of(ctx, err)
	}
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

// settings make the configuration for a URL. pgx reads the files of certificates and passwords when it parses a
// URL, and they are replaced before they expire. So settings parse the URL again for each connection.
type settings struct {
	url  *url.URL
	mu   sync.Mutex
	last *pgx.ConnConfig // the last that could be parsed
}

// Connect implements driver.Connector of database/sql, as Driver does: settings make the connections of a URL's pool.
func (s *settings) Connect(ctx context.Context) (sqldriver.Conn, error) {
	config, err := s.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config).Connect(ctx)
}

// Driver returns pgx's.
func (*settings) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// fresh returns the present configuration, or the last one while the files cannot be read or do not belong
// together.
func (s *settings) fresh(context.Context) (*pgx.ConnConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _, err := parse(s.url); err == nil {
		s.last = now
	}
	return s.last.Copy(), nil
}
