package sqllock

import (
	"context"
	"database/sql"
)

// changeDetector tells, at almost no cost, whether anything may have been written since the
// last poll. SQLite counts the commits that a connection sees of others: the poller keeps a
// connection for that, and polls on it too, as long as the pool has another one left; those
// who are to release a name may be waiting for it (P7). Without that connection, and in
// other databases, the answer is always that something may have been written.
type changeDetector struct {
	db      *sql.DB   // nil: not SQLite
	conn    *sql.Conn // nil: there is none at present
	version int64
	known   bool
}

func (c *client) newChangeDetector() *changeDetector {
	if c.statements.dialect != SQLite {
		return &changeDetector{}
	}
	return &changeDetector{db: c.db}
}

// mayHaveChanged reports whether a poll could find something new.
func (d *changeDetector) mayHaveChanged(ctx context.Context) bool {
	d.connect(ctx)
	if d.conn == nil {
		return true
	}
	var version int64
	if err := d.conn.QueryRowContext(context.WithoutCancel(ctx), "PRAGMA data_version").Scan(&version); err != nil {
		d.close()
		return true
	}
	if d.known && version == d.version {
		return false
	}
	d.known, d.version = true, version
	return true
}

// connect takes a connection if the pool can spare one, and gives it back if not.
func (d *changeDetector) connect(ctx context.Context) {
	if d.db == nil {
		return
	}
	pool := d.db.Stats()
	left := pool.MaxOpenConnections - pool.InUse
	if pool.MaxOpenConnections == 0 {
		left = 2
	}
	switch {
	case d.conn != nil && left < 1:
		d.close()
	case d.conn == nil && left > 1:
		d.conn, _ = d.db.Conn(ctx) // after an error the next poll tries again
	}
}

// close gives the connection back, and forgets the count: those of two connections cannot
// be compared.
func (d *changeDetector) close() {
	if d.conn != nil {
		d.conn.Close()
		d.conn, d.known = nil, false
	}
}
