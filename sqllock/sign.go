package sqllock

import (
	"context"
	"database/sql"
)

// sign tells whether anything may have been written since the last look: SQLite
// counts the commits that a connection sees of others, at no cost. It needs a
// connection of its own, so where the pool has but one, and in other databases,
// anything may always have been.
type sign struct {
	conn    *sql.Conn // nil: it tells nothing
	version int64
	known   bool
}

func (c *client) sign() *sign {
	if c.statements.dialect != SQLite || c.db.Stats().MaxOpenConnections == 1 {
		return &sign{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return &sign{}
	}
	return &sign{conn: conn}
}

// changed reports whether there may be something new to see.
func (s *sign) changed(ctx context.Context) bool {
	if s.conn == nil {
		return true
	}
	var version int64
	err := s.conn.QueryRowContext(context.WithoutCancel(ctx), "PRAGMA data_version").Scan(&version)
	if err == nil && s.known && version == s.version {
		return false
	}
	s.known, s.version = err == nil, version
	return true
}

// missed says that what is new was not seen.
func (s *sign) missed() { s.known = false }

func (s *sign) end() {
	if s.conn != nil {
		s.conn.Close()
	}
}
