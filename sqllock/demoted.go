package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
)

// A server may become a standby, or read-only, while its clients' connections stay open. Whatever is
// written over them is refused, and what is read there may be old: holds that were taken at the new
// primary are missing. So a request leaves each connection that leads there, and is repeated over
// others. PostgreSQL says that it is a standby beside each answer, MySQL's statements fail there
// (see grammar.primary), and a connection of SQLite may have been set to read only.

// demotions is how often a request is repeated because of a server that takes no writes: the pool
// may have several connections to it. After that there is no other server, for now.
const demotions = 4

// errDemoted says that what a request has read is of a server that takes no writes.
var errDemoted = errors.New("this server takes no writes: it is a standby, or read-only")

// errPending says that what a request has done is not committed. An application or a setting of the
// server can leave a connection of the pool in a transaction at any time. A hold that was taken there
// is gone when the connection ends, so it is never reported as held (P1).
var errPending = errors.New("a connection of the pool was left in a transaction, or has autocommit off:" +
	" it was closed, and what was done over it is not committed")

// atPrimary runs f on a connection, and leaves the connection if the server takes no writes, or if
// the connection is in a transaction afterwards. What f has done then counts as unknown: it may have
// written just before.
func (c *client) atPrimary(ctx context.Context, conn *sql.Conn, f onConn) error {
	err := f(ctx, conn)
	if c.library.Pending != nil && c.library.Pending(c.statementContext(ctx), conn) {
		c.discard(conn)
		if err == nil {
			err = errPending
		}
	}
	if err != nil && c.library.judge(err) == Demoted || c.library.Demoted != nil && c.library.Demoted(ctx, conn) {
		c.leaveServer(conn)
		if err == nil {
			return errDemoted
		}
		return fmt.Errorf("%w: %w", errDemoted, err)
	}
	return err
}

// leaveServer closes a connection that leads to a server that takes no writes. The reserved one may
// lead there too, and would be found out by the next renewal only.
func (c *client) leaveServer(conn *sql.Conn) {
	c.pool.reserve.giveBack()
	if c.library.Leave != nil {
		c.library.Leave(conn)
	}
	conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}
