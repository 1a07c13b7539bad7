package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
)

// reserve is the connection that is kept for renewals and releases, which use it one at a
// time. A broken one is replaced by the next connection with which a request for a hold, a
// renewal or a release is done. The queue's mutex guards it.
type reserve struct {
	queue                // has room while there is a connection
	conn   *sql.Conn     // nil: there is none
	absent chan struct{} // closed while there is none; nil: there never was one
	closed bool
}

// closedChannel is what missing returns if there never was a connection.
var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// missing returns a channel that is closed when there is no connection.
func (r *reserve) missing() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent == nil {
		return closedChannel
	}
	return r.absent
}

// offer reserves a connection if none is reserved, and reports whether it did.
func (r *reserve) offer(conn *sql.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.conn != nil || r.inside > 0 {
		return false
	}
	r.conn, r.absent, r.room = conn, make(chan struct{}), 1
	r.admitLocked()
	return true
}

// giveBack gives the connection back to the pool, once nobody uses it any more.
func (r *reserve) giveBack() {
	r.mu.Lock()
	conn := r.giveBackLocked()
	if r.inside > 0 {
		conn = nil // use closes it
	}
	r.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

func (r *reserve) giveBackLocked() *sql.Conn {
	conn := r.conn
	if conn != nil {
		r.conn, r.room = nil, 0
		close(r.absent)
	}
	return conn
}

// close gives the connection back and reserves no other.
func (r *reserve) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.giveBack()
}

// use calls f with the connection. The ticket is inside, and leaves. If f fails for any
// other reason than that others write too, the connection goes back to the pool, which
// judges it. It does so only then: suppose the connection went back after each conflict.
// Then the application would take it, and a renewal would wait for the application (P2).
func (r *reserve) use(
	ctx context.Context, t *ticket, judge func(error) Failure, f func(*sql.Conn) error,
) (connected bool, err error) {
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn == nil {
		r.leave(t)
		return false, sqldriver.ErrBadConn
	}
	if err = checkSession(ctx, conn); err == nil {
		connected = true
		err = f(conn)
	}
	bad := err != nil && (!connected || err != errChanged && judge(err) != Conflict || isClosed(conn))
	r.mu.Lock()
	if bad && r.conn == conn {
		r.giveBackLocked()
	}
	replaced := r.conn != conn
	r.mu.Unlock()
	if replaced {
		conn.Close()
	}
	r.leave(t)
	return connected, err
}

// isClosed reports whether a connection was discarded, or database/sql has found that
// it had ended.
func isClosed(conn *sql.Conn) bool { return conn.Raw(func(any) error { return nil }) != nil }

// checkSession finds out whether a connection has ended meanwhile, as a pool does
// before it hands one out.
func checkSession(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(c any) error {
		if v, ok := c.(sqldriver.Validator); ok && !v.IsValid() {
			return sqldriver.ErrBadConn
		}
		if r, ok := c.(sqldriver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
}
