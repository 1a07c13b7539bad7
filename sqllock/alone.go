package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"sync"
)

// SQLite has one writer at a time and no queue for it: who asks more often gets
// in. So the clients of one process take turns, and only one of them at a time asks
// SQLite: renewals first, then releases, then all others as they come.

// turns has a queue for each store of this process.
var turns struct {
	sync.Mutex
	m map[string]*queue
}

func turnsOf(store string) *queue {
	turns.Lock()
	defer turns.Unlock()
	if turns.m == nil {
		turns.m = map[string]*queue{}
	}
	if turns.m[store] == nil {
		turns.m[store] = &queue{room: 1}
	}
	return turns.m[store]
}

// priorityKey is the key of a request's priority in its context.
type priorityKey struct{}

// alone runs f, which writes, when it is this client's turn, again while another
// process writes. In other databases it just runs f. Whoever calls it has a
// connection already, so that nobody waits for one in his turn. It tells f whether
// others may have had a turn meanwhile.
func (c *client) alone(ctx context.Context, f func(waited bool) error) error {
	if c.turns == nil {
		return f(false)
	}
	t := &ticket{priority: taking}
	if urgency, ok := ctx.Value(priorityKey{}).(priority); ok {
		t.priority = min(urgency, taking) // what only reads writes what it has settled
	}
	waited, err := c.turns.wait(ctx, t)
	if err != nil {
		return errChanged
	}
	defer c.turns.leave(t)
	for attempt := 0; ; attempt++ {
		err := f(waited || attempt > 0)
		if err == nil || c.library.judge(err) != Conflict || !c.pause(ctx, attempt) {
			return err
		}
	}
}

// begin are the statements that begin a transaction in which nobody else writes the
// row of a name, and end those that end it. Others wait for its end, so the server
// ends it if this client stops in the middle (P7). In MySQL that is a setting of the
// session, which gets back what it had.
var (
	begin = map[Dialect][]string{
		Postgres: {
			"BEGIN ISOLATION LEVEL READ COMMITTED",
			"SELECT set_config('idle_in_transaction_session_timeout', '2000', true) FROM (SELECT 1 FROM {locks} WHERE name = $1 FOR UPDATE) l",
		},
		MySQL: {
			"SET @holdfast = @@SESSION.wait_timeout, SESSION wait_timeout = 2", // for connections that are idle, in a transaction too
			"BEGIN",
			"SELECT version INTO @holdfast_version FROM {locks} WHERE name = $1 FOR UPDATE",
		},
		SQLite: {"BEGIN IMMEDIATE"},
	}
	end = map[Dialect][]string{
		Postgres: {"COMMIT"},
		MySQL:    {"COMMIT", "SET SESSION wait_timeout = @holdfast"},
		SQLite:   {"COMMIT"},
	}
)

// changeAlone changes a name while nobody else writes it: it locks and reads, then
// writes and commits, which is two round trips where the library can.
func (c *client) changeAlone(ctx context.Context, conn *sql.Conn, name string, step func(*turn)) error {
	var s snapshot
	read := c.statements.read.bound(name)
	read.Into = s.into()
	if err := c.together(ctx, conn, append(bound(c.statements.begin, name), read)); err != nil {
		if c.statements.dialect != SQLite || c.library.judge(err) != Conflict {
			c.discard(conn) // it may have begun
		}
		return err
	}
	d, err := c.decide(name, &s, step)
	if err == nil && c.statements.dialect == SQLite {
		err = c.commitSQLite(ctx, conn, &d)
	} else if err == nil {
		statements := bound(c.statements.end, name)
		if d.write != nil {
			statements = slices.Insert(statements, 0, *d.write)
		}
		err = c.together(ctx, conn, statements)
	}
	switch {
	case err == errUndone:
		return errChanged
	case err != nil:
		c.discard(conn) // with what it has not committed
		return err
	case *d.written == 0:
		return errChanged // the row is new: there was none to lock
	}
	c.tellOwn(d.turn)
	return nil
}

// errUndone says that a transaction was rolled back, for others are at work.
var errUndone = errors.New("others are reading or writing")

// commitSQLite writes and commits. Without a write-ahead log a commit is refused as long
// as somebody reads, and keeps its transaction: then it is tried again, because nobody can
// begin to read meanwhile. If the context ends first it is rolled back, so nothing is uncertain.
func (c *client) commitSQLite(ctx context.Context, conn *sql.Conn, d *decision) error {
	run := func(s Statement) error { return runOne(c.local(ctx), conn, &s) }
	var err error
	if d.write != nil {
		err = run(*d.write)
	}
	commit := bound(c.statements.end)[0]
	for attempt := 0; err == nil; attempt++ {
		if err = run(commit); err == nil {
			return nil
		}
		if c.library.judge(err) == Conflict && c.pause(ctx, attempt) {
			err = nil
		}
	}
	if c.library.judge(err) == Conflict && run(Statement{Text: "ROLLBACK"}) == nil {
		return errUndone
	}
	return err
}

// discard closes a connection instead of giving it back to the pool.
func (c *client) discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
