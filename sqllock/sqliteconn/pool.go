package sqliteconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"

	"modernc.org/sqlite"
)

// Pool returns a pool as sql.Open("sqlite", dsn) does, but its connections keep their statements prepared: SQLite
// takes longer to parse a statement than to carry it out. See [DSN].
func Pool(dsn string) (*sql.DB, error) {
	inner, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{inner}), nil
}

type connector struct{ sqldriver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		inner.Close()
		return nil, fmt.Errorf("modernc.org/sqlite's connections are not as expected: %T", inner)
	}
	return &conn{full, map[string]fullStmt{}}, nil
}

// fullConn and fullStmt are the interfaces that database/sql uses.
type (
	fullConn interface {
		sqldriver.Conn
		sqldriver.ConnBeginTx
		sqldriver.ConnPrepareContext
		sqldriver.SessionResetter
		sqldriver.Validator
		sqldriver.Pinger
	}
	fullStmt interface {
		sqldriver.Stmt
		sqldriver.StmtExecContext
		sqldriver.StmtQueryContext
	}
)

// conn is a connection that prepares and keeps the statements which database/sql does not prepare itself. One
// goroutine uses it at a time, and ends a query before the next statement.
type conn struct {
	fullConn
	prepared map[string]fullStmt
}

// maxPrepared bounds the statements that are kept. There are some thirty.
const maxPrepared = 100

func (c *conn) statement(ctx context.Context, text string) (fullStmt, error) {
	if s, ok := c.prepared[text]; ok {
		return s, nil
	}
	if len(c.prepared) >= maxPrepared {
		c.forget()
	}
	prepared, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	s := prepared.(fullStmt)
	c.prepared[text] = s
	return s, nil
}

func (c *conn) forget() {
	for _, s := range c.prepared {
		s.Close()
	}
	clear(c.prepared)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args)
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	c.forget()
	return c.fullConn.Close()
}
