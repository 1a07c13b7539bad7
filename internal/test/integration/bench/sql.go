package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
	"github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

func init() {
	stores["postgres"] = &store{
		name: "postgres", floor: "upsert and update", ours: "holdfast", work: countedBy(postgresURL, pgconn.OpenPool, "SELECT sum(calls)::bigint FROM pg_stat_statements",
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"),
		peers: []peer{
			{name: "upsert and update", open: rowsOf(postgresRows, 0), skips: notPairs},
			{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, postgresURL(addr)) }},
			// Each of some hundred waiters searches for deadlocks: then the server grants no lock for a minute.
			{name: "pg_advisory_lock, a connection each", open: openAdvisory, skips: []string{"wait", "hold"}},
			{name: "upsert, polled every 100 ms", open: rowsOf(postgresRows, poll), skips: []string{"pair", "pair64", "hold"}},
		},
	}
	stores["mariadb"] = mysqlStore("mariadb", "information_schema")
	stores["mysql"] = mysqlStore("mysql", "performance_schema")
	stores["sqlite"] = &store{
		name: "sqlite", floor: "upsert and update", ours: "holdfast", work: func(context.Context, string) (served, error) { return served{}, nil },
		peers: []peer{
			{name: "upsert and update", open: rowsOf(sqliteRows, 0), skips: []string{"hot", "hot4", "handoff", "clients2", "clients16"}},
			{name: "holdfast", open: func(ctx context.Context, file string) (Locker, error) { return openHoldfast(ctx, sqliteURL(file)) }},
			{name: "upsert, polled every 100 ms", open: rowsOf(sqliteRows, poll), skips: []string{"pair", "pair64"}},
		},
	}
}

// mysqlStore is MariaDB or MySQL, which differ in the schema that has the server's
// counts.
func mysqlStore(name, counts string) *store {
	return &store{
		name: name, floor: "two updates", ours: "holdfast", work: countedBy(mysqlURL, mysqlconn.OpenPool, "SELECT variable_value FROM "+counts+".global_status WHERE variable_name = 'Questions'",
			"SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()"),
		peers: []peer{
			{name: "two updates", open: rowsOf(mysqlRows, 0), skips: notPairs},
			{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, mysqlURL(addr)) }},
			{name: "GET_LOCK, a connection each", open: openGetLock, skips: []string{"hold"}},
			{name: "update, polled every 100 ms", open: rowsOf(mysqlRows, poll), skips: []string{"pair", "pair64", "hold"}},
		},
	}
}

func postgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}
func mysqlURL(addr string) string  { return "mysql://root@" + addr + "/test" }
func sqliteURL(file string) string { return "sqlite://" + file }

// poll is how often many libraries ask whether a row is free.
const poll = 100 * time.Millisecond

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

// countedBy asks the server how many statements it has received, and how many other
// connections it has.
func countedBy(of func(addr string) string, open poolOf, statements, clients string) func(context.Context, string) (served, error) {
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
		db := known.(*sql.DB)
		if err := db.QueryRowContext(ctx, statements).Scan(&n.commands); err != nil {
			return n, err
		}
		return n, db.QueryRowContext(ctx, clients).Scan(&n.connections)
	}
}

// rows is the least lock that is a row with owner, token and expiry: the floor. With every it is
// like many libraries: a waiter asks again at this interval.
type rows struct {
	db    *sql.DB
	words rowWords
	every time.Duration
}

// rowWords are one database's own.
type rowWords struct {
	url                           func(addr string) string
	pool                          poolOf
	create, insert, take, release string
	returning                     bool // take returns the token, rather than LastInsertId
}

const benchOwner = "an owner of 26 characters."

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
		take: "UPDATE raw SET token = LAST_INSERT_ID(token + 1), expires = SYSDATE(6) + INTERVAL 30 SECOND, owner = '" + benchOwner + "'" +
			" WHERE name = ? AND expires <= SYSDATE(6)",
		release: "UPDATE raw SET owner = '', expires = '1970-01-02' WHERE name = ? AND owner = ? AND token = ?",
	}
	sqliteRows = rowWords{
		url: sqliteURL, pool: sqliteconn.OpenPool, returning: true,
		create: "CREATE TABLE IF NOT EXISTS raw (name TEXT PRIMARY KEY, owner TEXT, token INTEGER, expires REAL) WITHOUT ROWID",
		take: `INSERT INTO raw AS r VALUES (?, ?, 1, julianday('now') + 30.0 / 86400)
 ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = r.token + 1, expires = julianday('now') + 30.0 / 86400
 WHERE r.expires <= julianday('now') RETURNING token`,
		release: "UPDATE raw SET owner = '', expires = 0 WHERE name = ? AND owner = ? AND token = ?",
	}
)

// rowsOf opens such a peer. Processes that start at the same time may make each other's
// statements fail.
func rowsOf(w rowWords, every time.Duration) func(context.Context, string) (Locker, error) {
	return func(ctx context.Context, addr string) (Locker, error) {
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
		return &rows{db, w, every}, err
	}
}

func (r *rows) Lock(ctx context.Context, name string) (func() error, error) {
	known := r.words.insert == ""
	for {
		token, err := r.take(ctx, name)
		switch {
		case err == nil:
			return func() error { return r.give(name, token) }, nil
		case !errors.Is(err, sql.ErrNoRows) && !busy(err):
			return nil, err
		case !known:
			if _, err := r.db.ExecContext(ctx, r.words.insert, name); err != nil {
				return nil, err
			}
			known = true
			continue
		case r.every == 0 && !busy(err):
			return nil, errors.New("the name is not free")
		}
		select {
		case <-time.After(max(r.every, time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// busy reports whether SQLite has another writer.
func busy(err error) bool {
	var said interface{ Code() int }
	return errors.As(err, &said) && said.Code()&0xff == 5
}

func (r *rows) take(ctx context.Context, name string) (token int64, err error) {
	if r.words.returning {
		return token, r.db.QueryRowContext(ctx, r.words.take, name, benchOwner).Scan(&token)
	}
	done, err := r.db.ExecContext(ctx, r.words.take, name)
	if err != nil {
		return 0, err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return 0, errors.Join(err, sql.ErrNoRows)
	}
	return done.LastInsertId()
}

func (r *rows) give(name string, token int64) error {
	for {
		_, err := r.db.Exec(r.words.release, name, benchOwner, token)
		if !busy(err) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rows) Close() error { return r.db.Close() }

// session is a lock of the server's own that belongs to a connection: each holder and each
// waiter needs one. Idle connections are used again.
type session struct {
	db         *sql.DB
	connecting chan struct{} // bounds how many connect at once: of a thousand none would be answered in time
	lock, free string
	key        func(name string) any
}

func openAdvisory(_ context.Context, addr string) (Locker, error) {
	db, err := pool(postgresURL(addr)+"&connect_timeout=60", pgconn.OpenPool) // some of a thousand wait long
	if err != nil {
		return nil, err
	}
	return openSession(db, "SELECT 1 FROM (SELECT pg_advisory_lock($1)) AS l", "SELECT pg_advisory_unlock($1)::int", func(name string) any {
		h := fnv.New64a()
		h.Write([]byte(name))
		return int64(h.Sum64())
	}), nil
}

func openGetLock(_ context.Context, addr string) (Locker, error) {
	db, err := pool(mysqlURL(addr)+"?timeout=60s", mysqlconn.OpenPool)
	if err != nil {
		return nil, err
	}
	return openSession(db, "SELECT GET_LOCK(?, 3600)", "SELECT RELEASE_LOCK(?)", func(name string) any { return name }), nil
}

func openSession(db *sql.DB, lock, free string, key func(string) any) Locker {
	db.SetMaxOpenConns(0)
	db.SetMaxIdleConns(2000)
	return &session{db, make(chan struct{}, 32), lock, free, key}
}

func (s *session) Lock(ctx context.Context, name string) (func() error, error) {
	s.connecting <- struct{}{}
	conn, err := s.db.Conn(ctx)
	<-s.connecting
	if err != nil {
		return nil, err
	}
	if err := one(ctx, conn, s.lock, s.key(name)); err != nil {
		conn.Close()
		return nil, err
	}
	return func() error { return errors.Join(one(context.Background(), conn, s.free, s.key(name)), conn.Close()) }, nil
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

func (s *session) Close() error { return s.db.Close() }
