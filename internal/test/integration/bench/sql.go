package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

var (
	postgresStore = store{
		name: "postgres", title: "PostgreSQL", floor: "upsert and update", url: postgresURL,
		work: countedBy(postgresURL, pgconn.OpenPool, "SELECT sum(calls)::bigint FROM pg_stat_statements"),
		peers: []peer{
			{name: "upsert and update", can: pairs, open: rowsOf(postgresRows)},
			{name: "hf.durable=no", can: all, open: func(ctx context.Context, addr string) (locker, error) {
				return openHoldfast(ctx, postgresURL(addr)+"&hf.tables=unlogged&hf.durable=no")
			}},
			// Each of some hundred waiters searches for deadlocks: then the server grants no lock for a minute.
			{name: "pg_advisory_lock", can: all &^ wait, most: 256, open: openAdvisory},
		},
	}
	mariaDBStore = mysqlStore("mariadb", "MariaDB", "information_schema")
	mySQLStore   = mysqlStore("mysql", "MySQL", "performance_schema")
	sqliteStore  = store{name: "sqlite", title: "SQLite", url: func(file string) string { return "sqlite://" + file }}
	filesStore   = store{
		name: "files", title: "files", url: func(dir string) string { return "file://" + dir },
		peers: []peer{{name: "flock", can: all, open: openFlock}},
	}
)

// mysqlStore is MariaDB or MySQL, which differ in the schema that has the server's counts.
func mysqlStore(name, title, counts string) store {
	return store{
		name: name, title: title, floor: "two updates", url: mysqlURL,
		work: countedBy(mysqlURL, mysqlconn.OpenPool, "SELECT variable_value FROM "+counts+".global_status WHERE variable_name = 'Questions'"),
		peers: []peer{
			{name: "two updates", can: pairs, open: rowsOf(mysqlRows)},
			{name: "GET_LOCK", can: all, open: openGetLock},
		},
	}
}

func postgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}
func mysqlURL(addr string) string { return "mysql://root@" + addr + "/test" }

type poolOf func(*url.URL) (*sql.DB, string, error)

// pool opens a pool as Holdfast does.
func pool(raw string, open poolOf) (*sql.DB, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	db, _, err := open(u)
	return db, err
}

// askers are the connections that ask servers what they have done, by address. They stay, because
// a crowded server may let nobody in.
var askers sync.Map

// countedBy asks the server how many statements it has received.
func countedBy(of func(addr string) string, open poolOf, statements string) func(context.Context, string) (served, error) {
	return func(ctx context.Context, addr string) (n served, err error) {
		asker, err := pool(of(addr), open)
		if err != nil {
			return n, err
		}
		asker.SetMaxOpenConns(1)
		known, loaded := askers.LoadOrStore(addr, asker)
		if loaded {
			asker.Close()
		}
		return n, known.(*sql.DB).QueryRowContext(ctx, statements).Scan(&n.commands)
	}
}

// rowWords are one database's words for the least lock that is a row with owner, token and expiry.
type rowWords struct {
	url                           func(addr string) string
	pool                          poolOf
	create, insert, take, release string
	returning                     bool // take returns the token, rather than LastInsertId
}

var (
	postgresRows = rowWords{
		url: postgresURL, pool: pgconn.OpenPool, returning: true,
		create: "CREATE TABLE IF NOT EXISTS raw (name text PRIMARY KEY, owner text, token bigint, expires timestamptz) WITH (fillfactor = 50)",
		take: `INSERT INTO raw AS r VALUES ($1, $2, 1, clock_timestamp() + interval '30 s')
 ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = r.token + 1, expires = clock_timestamp() + interval '30 s'
 WHERE r.expires <= clock_timestamp() RETURNING token`,
		release: "UPDATE raw SET owner = '', expires = 'epoch' WHERE name = $1 AND owner = $2 AND token = $3",
	}
	mysqlRows = rowWords{
		url: mysqlURL, pool: mysqlconn.OpenPool,
		create: "CREATE TABLE IF NOT EXISTS raw (name VARBINARY(512) PRIMARY KEY, owner VARBINARY(64) NOT NULL, token BIGINT NOT NULL, expires DATETIME(6) NOT NULL) ENGINE = InnoDB",
		insert: "INSERT IGNORE INTO raw VALUES (?, '', 0, '1970-01-02')",
		take: "UPDATE raw SET token = LAST_INSERT_ID(token + 1), expires = SYSDATE(6) + INTERVAL 30 SECOND, owner = '" + owner + "'" +
			" WHERE name = ? AND expires <= SYSDATE(6)",
		release: "UPDATE raw SET owner = '', expires = '1970-01-02' WHERE name = ? AND owner = ? AND token = ?",
	}
)

// rowsOf opens such a lock, the floor: nobody waits for it. Processes that start at the same time may make
// each other's first statements fail.
func rowsOf(w rowWords) func(context.Context, string) (locker, error) {
	return func(ctx context.Context, addr string) (locker, error) {
		db, err := pool(w.url(addr), w.pool)
		if err != nil {
			return nil, err
		}
		for range 50 {
			if _, err = db.ExecContext(ctx, w.create); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		return func(ctx context.Context, name string) (hold, error) {
			token, err := w.takeRow(ctx, db, name)
			if errors.Is(err, sql.ErrNoRows) && w.insert != "" {
				if _, err = db.ExecContext(ctx, w.insert, name); err == nil {
					token, err = w.takeRow(ctx, db, name)
				}
			}
			return hold{release: func() error { _, err := db.Exec(w.release, name, owner, token); return err }}, err
		}, err
	}
}

func (w rowWords) takeRow(ctx context.Context, db *sql.DB, name string) (token int64, err error) {
	if w.returning {
		return token, db.QueryRowContext(ctx, w.take, name, owner).Scan(&token)
	}
	done, err := db.ExecContext(ctx, w.take, name)
	if err != nil {
		return 0, err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return 0, errors.Join(err, sql.ErrNoRows)
	}
	return done.LastInsertId()
}

func openAdvisory(_ context.Context, addr string) (locker, error) {
	db, err := pool(postgresURL(addr)+"&connect_timeout=60", pgconn.OpenPool) // some of a thousand wait long
	if err != nil {
		return nil, err
	}
	return sessionLock(db, "SELECT 1 FROM (SELECT pg_advisory_lock($1)) AS l", "SELECT pg_advisory_unlock($1)::int", func(name string) any {
		h := fnv.New64a()
		h.Write([]byte(name))
		return int64(h.Sum64())
	}), nil
}

func openGetLock(_ context.Context, addr string) (locker, error) {
	db, err := pool(mysqlURL(addr)+"?timeout=60s", mysqlconn.OpenPool)
	if err != nil {
		return nil, err
	}
	return sessionLock(db, "SELECT GET_LOCK(?, 3600)", "SELECT RELEASE_LOCK(?)", func(name string) any { return name }), nil
}

// sessionLock is a lock of the server's own that belongs to a connection: each holder and each
// waiter needs one. Idle connections are used again.
func sessionLock(db *sql.DB, lock, free string, key func(string) any) locker {
	db.SetMaxOpenConns(0)
	db.SetMaxIdleConns(2000)
	connecting := make(chan struct{}, 32) // if a thousand connect at once, none is answered in time
	return func(ctx context.Context, name string) (hold, error) {
		connecting <- struct{}{}
		conn, err := db.Conn(ctx)
		<-connecting
		if err != nil {
			return hold{}, err
		}
		if err := one(ctx, conn, lock, key(name)); err != nil {
			conn.Close()
			return hold{}, err
		}
		return hold{release: func() error { return errors.Join(one(context.Background(), conn, free, key(name)), conn.Close()) }}, nil
	}
}

// one runs a statement that returns 1 if all is well.
func one(ctx context.Context, conn *sql.Conn, text string, key any) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, text, key).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = fmt.Errorf("%s: %v", text, got)
	}
	return err
}

// openFlock is a bare lock of the system on one file, opened for each hold as flock(1) does: the
// kernel wakes waiters in no order that was promised.
func openFlock(_ context.Context, dir string) (locker, error) {
	return func(ctx context.Context, name string) (hold, error) {
		file, err := os.OpenFile(filepath.Join(dir, url.PathEscape(name)+".flock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return hold{}, err
		}
		locked := make(chan error, 1)
		go func() {
			var err error
			for again := true; again; again = errors.Is(err, syscall.EINTR) {
				err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
			}
			locked <- err
		}()
		select {
		case err := <-locked:
			return hold{release: file.Close}, err
		case <-ctx.Done(): // the system's call cannot be cut short
			go func() { <-locked; file.Close() }()
			return hold{}, ctx.Err()
		}
	}, nil
}
