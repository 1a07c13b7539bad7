package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"sync"
)

// SQLite has one writer at a time and no queue for it: who asks more often gets
// in. So the clients of one process take turns, in the order in which they come,
// and only one of them at a time asks SQLite.

// turns has for each store of this process a channel that holds one value while
// one of its clients writes.
var turns struct {
	sync.Mutex
	m map[string]chan struct{}
}

func turnsOf(store string) chan struct{} {
	turns.Lock()
	defer turns.Unlock()
	if turns.m == nil {
		turns.m = map[string]chan struct{}{}
	}
	if turns.m[store] == nil {
		turns.m[store] = make(chan struct{}, 1)
	}
	return turns.m[store]
}

// alone runs f, which writes, when it is this client's turn, again while another
// process writes. In other databases it just runs f. Whoever calls it has a
// connection already, so that nobody waits for one in his turn.
func (c *client) alone(ctx context.Context, f func() error) error {
	if c.turns == nil {
		return f()
	}
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return errChanged
	}
	defer func() { <-c.turns }()
	for attempt := 0; ; attempt++ {
		err := f()
		if err == nil || c.library.judge(err) != Conflict || !c.pause(ctx, attempt) {
			return err
		}
	}
}

// begin are the statements that begin a transaction in which nobody else writes the
// row of a name. Others wait for its end, so the server ends it if this client stops
// in the middle (P7). MySQL cannot; for MariaDB it is set for the session, which
// must not be used for anything else then.
var begin = map[Dialect][]string{
	Postgres: {
		"BEGIN ISOLATION LEVEL READ COMMITTED",
		"SELECT set_config('idle_in_transaction_session_timeout', '2000', true) FROM (SELECT 1 FROM {locks} WHERE name = $1 FOR UPDATE) l",
	},
	MySQL: {
		"SET @holdfast = 1 /*M!100300 , SESSION idle_transaction_timeout = 2 */",
		"BEGIN",
		"SELECT 1 FROM {locks} WHERE name = $1 FOR UPDATE",
	},
	SQLite: {"BEGIN IMMEDIATE"},
}

// changeAlone changes a name while nobody else writes it. In SQLite that is the
// only way: there it takes long to be let in, and reading and writing take no time,
// so whoever had read before would hardly ever be the first to write.
func (c *client) changeAlone(ctx context.Context, conn *sql.Conn, name string, step func(*turn)) error {
	return c.alone(ctx, func() error {
		for i := range c.statements.begin {
			if err := c.beginStep(ctx, conn, &c.statements.begin[i], name); err != nil {
				if i > 0 || c.library.judge(err) != Conflict {
					c.discard(conn) // it may have begun
				}
				return err
			}
		}
		done, err := c.changeOnce(ctx, conn, name, nil, step, c.write)
		if err == nil {
			_, err = conn.ExecContext(c.local(ctx), "COMMIT")
		}
		if err == nil && !done {
			err = errChanged
		}
		if err != nil || c.statements.dialect == MySQL {
			c.discard(conn) // with what it has not committed
		}
		return err
	})
}

func (c *client) beginStep(ctx context.Context, conn *sql.Conn, q *query, name string) error {
	args := []any{name}
	if !strings.Contains(q.text, "name = ") {
		args = nil
	}
	_, err := conn.ExecContext(c.local(ctx), q.text, args...)
	return err
}

// discard closes a connection instead of giving it back to the pool.
func (c *client) discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
