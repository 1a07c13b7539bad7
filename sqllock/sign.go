package sqllock

import (
	"context"
	"database/sql"
)

// sign tells whether anything may have been written since the last look: SQLite
// counts the commits that a connection sees of others, at no cost. For that the looker
// keeps one, and looks on it too, as long as the pool has another: those who are to
// release a name may wait for it (P7). Without one, and in other databases, anything
// may always have been written.
type sign struct {
	db      *sql.DB   // nil: no SQLite
	conn    *sql.Conn // nil: it tells nothing
	version int64
	known   bool
}

func (c *client) sign() *sign {
	if c.statements.dialect != SQLite {
		return &sign{}
	}
	return &sign{db: c.db}
}

// changed reports whether there may be something new to see.
func (s *sign) changed(ctx context.Context) bool {
	s.connect(ctx)
	if s.conn == nil {
		return true
	}
	var version int64
	if err := s.conn.QueryRowContext(context.WithoutCancel(ctx), "PRAGMA data_version").Scan(&version); err != nil {
		s.end()
		return true
	}
	if s.known && version == s.version {
		return false
	}
	s.known, s.version = true, version
	return true
}

// connect takes a connection, or gives it back, as the pool is now.
func (s *sign) connect(ctx context.Context) {
	if s.db == nil {
		return
	}
	pool := s.db.Stats()
	left := pool.MaxOpenConnections - pool.InUse
	if pool.MaxOpenConnections == 0 {
		left = 2
	}
	switch {
	case s.conn != nil && left < 1:
		s.end()
	case s.conn == nil && left > 1:
		s.conn, _ = s.db.Conn(ctx) // it is tried again at the next look
	}
}

// end gives the connection back. That of another says nothing of what was seen by
// this one's count.
func (s *sign) end() {
	if s.conn != nil {
		s.conn.Close()
		s.conn, s.known = nil, false
	}
}
