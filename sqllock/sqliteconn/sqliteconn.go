// Package sqliteconn lets package sqllock keep locks in a SQLite file, for the processes of one host, through
// modernc.org/sqlite, and registers the URL scheme sqlite:
//
//	sqlite:///var/lib/app/locks.db
//
// The file is made if it is missing; its directory must exist. The parameter hf.tables is what the tables' names
// begin with: see sqllock.Options. The file must not be on a network file system, where SQLite's own locks do not
// work. There is one writer at a time, and SQLite serves those that wait in no order: a crowd of processes is
// better off with package filelock.
package sqliteconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func init() {
	driver.Register("sqlite", open)
	// The host's clock: SQLite's own has milliseconds, and stands still during a statement.
	sqlite.MustRegisterScalarFunction("holdfast_now", 0, func(*sqlite.FunctionContext, []sqldriver.Value) (sqldriver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
}

// poolSize is how many connections the pool of a URL has at most. One is for renewals. There is one writer at a time
// in any case.
const poolSize = 5

// open opens the driver for a URL, with a pool of its own.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	db, prefix, err := OpenPool(u)
	if err != nil {
		return nil, err
	}
	library := sqllock.Library{Failure: failure, Pending: pending, Close: db.Close}
	return sqllock.New(ctx, db, sqllock.SQLite, library, &sqllock.Options{Prefix: prefix})
}

// OpenPool returns a pool such as the driver has for a URL, and the prefix of its tables' names, for programs that
// read the file beside the driver. It does not touch the file. The caller closes the pool.
func OpenPool(u *url.URL) (db *sql.DB, prefix string, err error) {
	o, _, err := sqllock.ParseURL(u, sqllock.SQLite)
	if err != nil {
		return nil, "", err
	}
	if u.Opaque != "" || u.Fragment != "" || u.User != nil || u.Host != "" || !filepath.IsAbs(u.Path) || u.Path == "/" {
		return nil, "", errors.New("store URL has no file: it looks like sqlite:///var/lib/app/locks.db, with three slashes")
	}
	if db, err = sql.Open("sqlite", DSN(u.Path)); err != nil {
		return nil, "", err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db, o.Prefix, nil
}

// DSN returns the name of a file for sql.Open("sqlite", …) with the best settings for locks: a write-ahead log,
// which lets others read meanwhile and is synced at each commit, and a short busy timeout, because the driver asks
// again by itself, more often than SQLite would.
func DSN(file string) string {
	pragmas := url.Values{"_pragma": {"busy_timeout(10)", "journal_mode(WAL)", "synchronous(FULL)"}}
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + pragmas.Encode()
}

// New returns a driver over a pool of modernc.org/sqlite. The caller owns the pool and closes it after the driver. The
// driver keeps one of its connections for renewals: see package sqllock. See [DSN] for settings. The pool is one of
// sql.Open("sqlite", …): to those this package adds the function holdfast_now. Nil options are fine.
func New(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error) {
	return sqllock.New(ctx, db, sqllock.SQLite, sqllock.Library{Failure: failure, Pending: pending}, o)
}

// SQLite's primary result codes.
const (
	codeBusy, codeLocked, codeReadOnly, codeInterrupt, codeIO = 5, 6, 8, 9, 10
)

// failure implements Failure of sqllock.Library.
func failure(err error) sqllock.Failure {
	e := (*sqlite.Error)(nil)
	if !errors.As(err, &e) {
		return sqllock.Unknown
	}
	switch e.Code() & 0xff {
	case codeBusy, codeLocked:
		return sqllock.Conflict
	case codeReadOnly: // the connection was made, or set, to read only: another may write
		return sqllock.Demoted
	case codeInterrupt, codeIO:
		return sqllock.Unknown
	}
	return sqllock.Refused
}

// pending implements Pending of sqllock.Library: no transaction begins in another. One that begins like this takes
// no lock.
func pending(ctx context.Context, conn *sql.Conn) bool {
	if conn.Raw(func(any) error { return nil }) != nil {
		return false // it is closed
	}
	for _, text := range []string{"BEGIN DEFERRED", "ROLLBACK"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return true
		}
	}
	return false
}
