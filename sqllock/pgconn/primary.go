package pgconn

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// attributes is pgx's parameter that says which of several servers to use.
const attributes = "target_session_attrs"

// aimAtPrimary makes a URL's connections lead to servers that take writes, if it has several hosts. It refuses what
// would lead elsewhere.
func aimAtPrimary(query url.Values, several bool) error {
	switch value := query.Get(attributes); value {
	case "read-write", "primary":
	case "", "any":
		if several && value == "any" {
			return fmt.Errorf("URL parameter %s is any: with several hosts read-write is right, the default", attributes)
		}
		if several {
			query.Set(attributes, "read-write")
		}
	case "standby", "read-only", "prefer-standby":
		return fmt.Errorf("URL parameter %s is %s: locks are written, so read-write is right", attributes, value)
	}
	return nil // pgx refuses the rest
}

// demoted implements Demoted of sqllock.Library. Servers from PostgreSQL 14 on tell it, beside the answer to any
// statement. A pooler may tell what was true when it connected, so the server is asked before it is believed.
func demoted(ctx context.Context, conn *sql.Conn) bool {
	is := false
	conn.Raw(func(c any) error {
		own := c.(*stdlib.Conn).Conn()
		if told := own.PgConn().ParameterStatus; told("in_hot_standby") == "on" || told("default_transaction_read_only") == "on" {
			is = !takesWrites(ctx, own)
		}
		return nil
	})
	return is
}

// pending implements Pending of sqllock.Library. The server tells it after each statement.
func pending(_ context.Context, conn *sql.Conn) (is bool) {
	conn.Raw(func(c any) error {
		is = c.(*stdlib.Conn).Conn().PgConn().TxStatus() != 'I'
		return nil
	})
	return is
}

// leave implements Leave of sqllock.Library. It closes the connection below database/sql, because a pool of pgx
// would take it back. The hub may listen at the same server, where nothing is told.
func (l listener) leave(conn *sql.Conn) {
	conn.Raw(func(c any) error {
		closeConn(c.(*stdlib.Conn).Conn())
		return nil
	})
	hubs.Lock()
	h := hubs.m[keyOf(l.config)]
	hubs.Unlock()
	if h != nil {
		h.leaveServer()
	}
}

// takesWrites reports whether the server is still there, and takes writes.
func takesWrites(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var readOnly string
	err := conn.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeExec).Scan(&readOnly)
	return err == nil && readOnly == "off"
}
