package bench

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// crowdStores are the stores of crowds, by name, with the peers of a crowd.
var crowdStores = map[string]*store{}

var (
	notCrowds = []string{"pool", "impatience", "impatience1000"}
	onlyLoops = append([]string{"idle"}, notCrowds...)
)

func init() {
	crowdStores["redis"] = &store{name: "redis", ours: "holdfast", url: func(addr string) string { return "redis://" + addr }, work: redisWork, peers: []peer{
		{name: "holdfast", open: openHoldfastRedis, skips: []string{"pool"}},
		{name: "rueidislock", open: openRueidislock(2, false), skips: notCrowds},
		{name: "redsync on rueidis", open: openRedsyncRueidis, skips: notCrowds},
	}}
	crowdStores["etcd"] = &store{name: "etcd", ours: "holdfast", url: func(addr string) string { return "etcd://" + addr }, work: etcdWork, peers: []peer{
		{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, "etcd://"+addr) }, skips: []string{"pool"}},
		{name: "concurrency.Mutex", open: openStockEtcd, skips: notCrowds},
	}}
	crowdStores["files"] = &store{name: "files", ours: "holdfast", url: func(addr string) string { return "file://" + addr }, work: func(context.Context, string) (served, error) { return served{}, nil }, peers: []peer{
		{name: "holdfast", open: func(ctx context.Context, dir string) (Locker, error) { return openHoldfast(ctx, "file://"+dir) }, skips: []string{"pool"}},
		{name: "flock", open: openFlock, skips: notCrowds},
	}}
	// With some hundred waiters pg_advisory_lock is granted to nobody for a minute.
	crowdStores["postgres"] = crowdSQL("postgres", smallPostgres, "pg_advisory_lock", openAdvisory, postgresRows, append([]string{"clients1000"}, onlyLoops...))
	for _, name := range []string{"mariadb", "mysql"} {
		crowdStores[name] = crowdSQL(name, smallMySQL, "GET_LOCK", openGetLock, mysqlRows, notCrowds)
	}
}

// crowdSQL has the peers of a crowd in a database.
func crowdSQL(name string, ours smallPool, theirs string, open func(context.Context, string) (Locker, error), words rowWords, skips []string) *store {
	work := func(ctx context.Context, addr string) (served, error) { return stores[name].work(ctx, addr) }
	return &store{name: name, ours: "holdfast", url: ours.url, floor: oneConnection, work: work, peers: []peer{
		{name: "holdfast", open: ours.open, skips: []string{"pool"}},
		{name: theirs, open: open, skips: skips},
		{name: oneConnection, open: openSerial(words), skips: onlyLoops, alone: true},
		{name: sharedPool, open: ours.openShared, only: "pool"},
	}}
}

const (
	oneConnection = "UPDATE and commit, one connection"
	sharedPool    = "holdfast, shared pools"
)

// smallConns is how many connections a client of a crowd has, or all clients of a process whose
// pool they share.
const smallConns = 2

// smallPool makes clients of Holdfast over small pools.
type smallPool struct {
	url    func(addr string) string
	pools  poolOf
	driver func(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error)
}

var (
	smallPostgres = smallPool{postgresURL, pgconn.OpenPool, pgconn.New}
	smallMySQL    = smallPool{mysqlURL, mysqlconn.OpenPool, mysqlconn.New}
)

func (p smallPool) connect(addr string) (*sql.DB, error) {
	db, err := pool(p.url(addr), p.pools)
	if err == nil {
		db.SetMaxOpenConns(smallConns)
		db.SetMaxIdleConns(smallConns)
	}
	return db, err
}

// open opens a client with a pool of its own.
func (p smallPool) open(ctx context.Context, addr string) (Locker, error) {
	db, err := p.connect(addr)
	if err != nil {
		return nil, err
	}
	return p.over(ctx, db)
}

// shared are the pools of this process that clients share, by address.
var shared struct {
	sync.Mutex
	pools map[string]*sql.DB
}

// openShared opens a client over a pool that it shares with all others of the process.
func (p smallPool) openShared(ctx context.Context, addr string) (Locker, error) {
	shared.Lock()
	defer shared.Unlock()
	db := shared.pools[addr]
	if db == nil {
		var err error
		if db, err = p.connect(addr); err != nil {
			return nil, err
		}
		if shared.pools == nil {
			shared.pools = map[string]*sql.DB{}
		}
		shared.pools[addr] = db
	}
	return p.over(ctx, db)
}

func (p smallPool) over(ctx context.Context, db *sql.DB) (Locker, error) {
	d, err := p.driver(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	client, err := holdfast.New(d, nil)
	return ours{client}, err
}

// serial is what no lock with a commit for each owner change can exceed: one connection that
// updates the row of a name and commits, again and again. It excludes nobody.
type serial struct {
	conn *sql.Conn
	text string
}

// openSerial returns a function that opens such a connection, and makes the row.
func openSerial(words rowWords) func(context.Context, string) (Locker, error) {
	return func(ctx context.Context, addr string) (Locker, error) {
		l, err := rowsOf(words, 0)(ctx, addr)
		if err != nil {
			return nil, err
		}
		unlock, err := l.Lock(ctx, crowdName)
		if err == nil {
			err = unlock()
		}
		if err != nil {
			return nil, err
		}
		conn, err := l.(*rows).db.Conn(ctx)
		return &serial{conn, "UPDATE raw SET token = token + 1 WHERE name = '" + crowdName + "'"}, err
	}
}

func (s *serial) Lock(ctx context.Context, _ string) (func() error, error) {
	_, err := s.conn.ExecContext(ctx, s.text)
	return func() error { return nil }, err
}

func (s *serial) Close() error { return s.conn.Close() }

// flock is a bare lock of the system on one file, opened for each hold as flock(1) does: the
// kernel wakes waiters in no order that was promised.
type flock struct{ dir string }

func openFlock(_ context.Context, dir string) (Locker, error) { return flock{dir}, nil }

func (f flock) Lock(ctx context.Context, name string) (func() error, error) {
	file, err := os.OpenFile(filepath.Join(f.dir, filepath.Base(name)+".flock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
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
		return file.Close, err
	case <-ctx.Done(): // the system's call cannot be cut short
		go func() { <-locked; file.Close() }()
		return nil, ctx.Err()
	}
}

func (f flock) Close() error { return nil }
