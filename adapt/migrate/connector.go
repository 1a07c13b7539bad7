package migrate

import (
	"context"
	"database/sql/driver"
	"strings"
)

// WithoutAdvisoryLocks returns a connector for sql.OpenDB whose connections do as if they had run
// the statements by which golang-migrate locks and unlocks a PostgreSQL database, and run all
// others. Use it for golang-migrate only, under a lock of Holdfast.
//
// The connector is that of pgx, stdlib.GetConnector, or of lib/pq. Through a pooler in transaction
// mode pgx must not prepare statements: set DefaultQueryExecMode to QueryExecModeExec.
func WithoutAdvisoryLocks(c driver.Connector) driver.Connector { return connector{c} }

type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn{inner}, nil
}

// conn forwards what golang-migrate needs: statements and transactions.
type conn struct{ driver.Conn }

func (c conn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Result, error) {
	switch strings.TrimSpace(query) {
	case "SELECT pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)":
		return driver.RowsAffected(1), nil
	}
	if e, ok := c.Conn.(driver.ExecerContext); ok {
		return e.ExecContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c conn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (driver.Rows, error) {
	if q, ok := c.Conn.(driver.QueryerContext); ok {
		return q.QueryContext(ctx, query, args)
	}
	return nil, driver.ErrSkip
}

func (c conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if b, ok := c.Conn.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, o)
	}
	//lint:ignore SA1019 drivers without contexts have nothing else
	return c.Conn.Begin()
}

// CheckNamedValue lets the connection convert arguments, such as pgx's.
func (c conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
