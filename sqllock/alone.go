package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
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

// changeAlone changes a name while nobody else writes. It is for SQLite: there it
// takes long to be let in, and reading and writing take no time, so whoever had
// read before would hardly ever be the first to write.
func (c *client) changeAlone(ctx context.Context, conn *sql.Conn, name string, step func(*turn)) error {
	return c.alone(ctx, func() error {
		if _, err := conn.ExecContext(c.local(ctx), "BEGIN IMMEDIATE"); err != nil {
			if c.library.judge(err) != Conflict {
				c.discard(conn) // it may have begun
			}
			return err
		}
		_, err := c.changeOnce(ctx, conn, name, nil, step, c.write)
		if err == nil {
			_, err = conn.ExecContext(c.local(ctx), "COMMIT")
		}
		if err != nil {
			c.discard(conn) // with what it has not committed
		}
		return err
	})
}

// discard closes a connection instead of giving it back to the pool.
func (c *client) discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
