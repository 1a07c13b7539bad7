// Package mysqlconn lets package sqllock keep locks in MariaDB, or in MySQL 8, through the client library
// go-sql-driver/mysql, and registers the URL schemes mysql and mariadb, which mean the same:
//
//	mysql://user:password@host:3306/database?tls=true
//	mysql://user:password@/database?socket=/run/mysqld/mysqld.sock
//
// The parameters hf.tables, hf.maxttl and hf.forget (go or wait) are Prefix, MaxTTL and Forget of sqllock.Options. All
// others are those of the client library's DSN.
package mysqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func init() {
	driver.Register("mysql", open)
	driver.Register("mariadb", open)
}

// The pool of a URL: connections are opened as they are needed.
const (
	poolSize    = 16
	idleFor     = time.Minute // servers end idle connections, some soon
	dialTimeout = 5 * time.Second
)

// open opens the driver for a URL, with a pool of its own.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	db, o, err := pool(u)
	if err != nil {
		return nil, err
	}
	own := library
	own.Idle = poolSize
	// Its error would only say that a connection that broke could not end its session in order.
	own.Close = func() error { db.Close(); return nil }
	return sqllock.New(ctx, db, sqllock.MySQL, own, o)
}

// OpenPool returns a pool such as the driver has for a URL, and the prefix of its tables' names, for programs that
// read the database beside the driver. It makes no contact. The caller closes the pool.
func OpenPool(u *url.URL) (db *sql.DB, prefix string, err error) {
	db, o, err := pool(u)
	return db, o.Prefix, err
}

func pool(u *url.URL) (*sql.DB, *sqllock.Options, error) {
	config, o, err := parse(u)
	if err != nil {
		return nil, o, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, o, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	db.SetConnMaxIdleTime(idleFor)
	return db, o, nil
}

// parse understands a URL. Its errors do not show user or password.
func parse(u *url.URL) (*mysql.Config, *sqllock.Options, error) {
	o, query, err := sqllock.ParseURL(u, sqllock.MySQL)
	if err != nil {
		return nil, o, err
	}
	database := strings.Trim(u.Path, "/")
	if u.Opaque != "" || u.Fragment != "" || database == "" || strings.Contains(database, "/") {
		return nil, o, errors.New("store URL has no database: it looks like mysql://user:password@host:3306/database, or " + socketURL)
	}
	socket := query.Get("socket")
	if query.Has("socket") && (!strings.HasPrefix(socket, "/") || u.Host != "") {
		return nil, o, errors.New("store URL has a socket and a host, or no absolute path of a socket: it looks like " + socketURL)
	}
	query.Del("socket")
	if !query.Has("autocommit") {
		query.Set("autocommit", "1") // whatever the server says
	}
	config, err := mysql.ParseDSN("tcp(127.0.0.1)/?" + query.Encode())
	if err != nil {
		return nil, o, errors.New("the client library does not understand the parameters of this URL")
	}
	config.Addr = net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "3306"))
	config.DBName = database
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	if u.User != nil {
		config.User = u.User.Username()
		config.Passwd, _ = u.User.Password()
	}
	config.Logger = &mysql.NopLogger{} // errors are returned
	config.MultiStatements = true      // one round trip for several of ours, which have no text of others in them
	if config.Timeout == 0 {
		config.Timeout = dialTimeout
	}
	return config, o, nil
}

// socketURL is what a URL of a unix socket looks like.
const socketURL = "mysql://user:password@/database?socket=/run/mysqld/mysqld.sock"

// New returns a driver over a pool of go-sql-driver/mysql. The caller owns the pool and closes it after the driver.
// The driver keeps one of its connections for renewals: see package sqllock. Set multiStatements, or a
// transaction at a contended name takes several round trips. Nil options are fine.
func New(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error) {
	return sqllock.New(ctx, db, sqllock.MySQL, library, o)
}
