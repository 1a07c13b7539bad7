package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
)

// SQLite lets one connection write at a time and has no queue for the others: the one that
// asks most often gets in. So the clients of one process queue for the writer lock of their
// file here: renewals first, then releases, then all others in order of arrival. The first of
// each process lines up at a file beside it: see writerFile. So one client at a time asks SQLite.

// writerLock is that of one SQLite file in this process.
type writerLock struct {
	queue
	file  *writerFile // nil: the database is in memory
	users int         // clients; guarded by writerLocks
}

// writerLocks are those of this process.
var writerLocks struct {
	sync.Mutex
	m map[string]*writerLock // by path
}

// joinWriters sets the client's writer lock, if it needs one.
func (c *client) joinWriters(ctx context.Context) error {
	if c.statements.dialect != SQLite {
		return nil
	}
	if _, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		return c.together(ctx, conn, []Statement{
			{Text: "SELECT file FROM pragma_database_list WHERE name = 'main'", Into: []any{&c.path}},
		})
	}); err != nil {
		return err
	}
	writerLocks.Lock()
	defer writerLocks.Unlock()
	if writerLocks.m == nil {
		writerLocks.m = map[string]*writerLock{}
	}
	if c.writers = writerLocks.m[c.path]; c.writers == nil {
		c.writers = &writerLock{queue: queue{room: 1}}
		if c.path != "" {
			c.writers.file = newWriterFile(c.path)
		}
		writerLocks.m[c.path] = c.writers
	}
	c.writers.users++
	return nil
}

// leaveWriters ends the client's use of its writer lock.
func (c *client) leaveWriters() {
	if c.writers == nil {
		return
	}
	writerLocks.Lock()
	defer writerLocks.Unlock()
	if c.writers.users--; c.writers.users == 0 {
		delete(writerLocks.m, c.path)
		if c.writers.file != nil {
			c.writers.file.close()
		}
	}
}

// priorityKey is the key of a request's priority in its context.
type priorityKey struct{}

// withWriterLock runs f, which writes, when no other client writes in the store, and again as long
// as one does that did not line up. In other databases it just runs f. The
// caller has a connection already, so the holder of the writer lock never waits for one. f is
// told whether others may have written since the call.
func (c *client) withWriterLock(ctx context.Context, f func(waited bool) error) error {
	if c.writers == nil {
		return f(false)
	}
	t := &ticket{priority: taking}
	if urgency, ok := ctx.Value(priorityKey{}).(priority); ok {
		t.priority = min(urgency, taking) // a request that only reads writes what it has settled
	}
	waited, err := c.writers.wait(ctx, t)
	if err != nil {
		return errChanged
	}
	defer c.writers.leave(t)
	if file := c.writers.file; file != nil {
		late, locked := file.lock(ctx)
		if locked {
			defer file.unlock()
		}
		waited = waited || late
	}
	for attempt := 0; ; attempt++ {
		err := f(waited || attempt > 0)
		if err == nil || c.library.judge(err) != Conflict || !c.pause(ctx, attempt) {
			return err
		}
	}
}

// beginTexts begin a transaction that locks the row of a name, commitTexts commit it. Others
// wait until then, so the server ends the transaction of a client that stops in the middle
// (P7). In MySQL that takes a setting of the session, which is restored afterwards. A COMMIT there
// says that no transaction follows: with completion_type=CHAIN on the server one would.
var (
	beginTexts = map[Dialect][]string{
		Postgres: {
			"BEGIN ISOLATION LEVEL READ COMMITTED",
			"SELECT set_config('idle_in_transaction_session_timeout', '2000', true)" +
				" FROM (SELECT 1 FROM {locks} WHERE name = $1 FOR UPDATE) l",
		},
		MySQL: {
			// wait_timeout is for idle connections, also those in a transaction.
			"SET @holdfast = @@SESSION.wait_timeout, SESSION wait_timeout = 2",
			"BEGIN",
			"SELECT version INTO @holdfast_version FROM {locks} WHERE name = $1 FOR UPDATE",
		},
		SQLite: {"BEGIN IMMEDIATE"},
	}
	commitTexts = map[Dialect][]string{
		Postgres: {"COMMIT"},
		MySQL:    {commitMySQL, "SET SESSION wait_timeout = @holdfast"},
		SQLite:   {"COMMIT"},
	}
)

const commitMySQL = "COMMIT AND NO CHAIN NO RELEASE"

// startTexts and finishTexts stand around the statements of a transaction that is sent as a whole.
// joinTexts take a place. What PostgreSQL gets in one go it carries out as one transaction, so the
// place is committed before the name is read.
var (
	startTexts  = map[Dialect][]string{MySQL: {"BEGIN"}}
	finishTexts = map[Dialect][]string{MySQL: {commitMySQL}}
	joinTexts   = map[Dialect][]string{
		Postgres: {"BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit = off", joinText, "COMMIT"},
		MySQL:    {forgetMySQL, crowdMySQL, joinMySQL},
		SQLite:   {joinText},
	}
)

// changeInTransaction changes a name while the row is locked, so nobody else writes it:
// begin, lock and read, then write and commit. Each half is one round trip where the library
// can send statements together.
func (c *client) changeInTransaction(ctx context.Context, conn *sql.Conn, name string, l look, step func(*attempt)) error {
	s, err := c.beginAndRead(ctx, conn, name, l)
	if err != nil {
		if c.writers == nil || c.library.judge(err) != Conflict {
			c.discard(conn) // the transaction may have begun
		}
		return err
	}
	d, err := c.decideOn(name, s, l, step, func(l look) (*snapshot, error) { return c.read(ctx, conn, name, l) })
	switch {
	case err != nil:
	case c.writers != nil:
		err = c.commitSQLite(ctx, conn, &d)
	case d.places && c.library.Together == nil && len(d.write) > 1:
		// Whether the first has changed the row decides on the others.
		if err = runOne(ctx, conn, &d.write[0]); err == nil && *d.written == 0 {
			err = errChanged
		}
		if err == nil {
			err = c.together(ctx, conn, append(d.write[1:], bound(c.statements.commit, name)...))
		}
	default:
		err = c.together(ctx, conn, append(d.write, bound(c.statements.commit, name)...))
	}
	switch {
	case err == errRolledBack:
		return errChanged
	case err != nil:
		c.discard(conn) // with what it has not committed
		return err
	case *d.written == 0:
		return errChanged // the row is new: there was none to lock
	case d.write == nil:
		return nil
	}
	return c.written(ctx, conn, name, &d)
}

// beginAndRead begins a transaction, locks the name and reads it. In SQLite the time that counts is
// the host's after the lock was waited for. A, at an earlier time, could hand the name to B, which has asked since
// and counts its trust from there: the claim would end before B stops to trust it (P1).
func (c *client) beginAndRead(ctx context.Context, conn *sql.Conn, name string, l look) (*snapshot, error) {
	begin := bound(c.statements.begin, name)
	if c.statements.dialect == SQLite {
		if err := c.together(ctx, conn, begin); err != nil {
			return nil, err
		}
		begin = nil
	}
	read, s := c.reading(name, l)
	return s, c.together(ctx, conn, append(begin, read))
}

// errRolledBack says that a transaction was rolled back because others read or write.
var errRolledBack = errors.New("others are reading or writing")

// commitSQLite writes and commits. Without a write-ahead log SQLite refuses a commit while
// others read, and keeps the transaction: the commit is then repeated, because nobody can
// begin to read meanwhile. If the context ends first the transaction is rolled back, so its
// outcome is certain.
func (c *client) commitSQLite(ctx context.Context, conn *sql.Conn, d *decision) error {
	run := func(s Statement) error { return runOne(c.statementContext(ctx), conn, &s) }
	var err error
	for _, w := range d.write {
		if err == nil {
			err = run(w)
		}
	}
	commit := bound(c.statements.commit)[0]
	for attempt := 0; err == nil; attempt++ {
		if err = run(commit); err == nil {
			return nil
		}
		if c.library.judge(err) == Conflict && c.pause(ctx, attempt) {
			err = nil
		}
	}
	if c.library.judge(err) == Conflict && run(Statement{Text: "ROLLBACK"}) == nil {
		return errRolledBack
	}
	return err
}

// unsynced runs statements that SQLite, where it has a write-ahead log, need not write to the disk
// at once. They change places only: suppose the host crashes, and SQLite forgets them. Then nobody
// is left that waits there. Without such a log a crash could do damage, so it is as ever there.
func (c *client) unsynced(ctx context.Context, conn *sql.Conn, statements []Statement) error {
	const full = 2 // or more
	var journal string
	var level int
	if err := c.together(ctx, conn, []Statement{
		{Text: "PRAGMA journal_mode", Into: []any{&journal}}, {Text: "PRAGMA synchronous", Into: []any{&level}},
	}); err != nil {
		return err
	}
	if journal != "wal" || level < full {
		return c.together(ctx, conn, statements)
	}
	if err := c.together(ctx, conn, []Statement{{Text: "PRAGMA synchronous = NORMAL"}}); err != nil {
		return err
	}
	err := c.together(ctx, conn, statements)
	if c.together(ctx, conn, []Statement{{Text: fmt.Sprintf("PRAGMA synchronous = %d", level)}}) != nil {
		c.discard(conn) // other writes must be synced
		if err == nil {
			err = errChanged // the request goes on with another connection
		}
	}
	return err
}

// discard closes a connection instead of giving it back to the pool.
func (c *client) discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
