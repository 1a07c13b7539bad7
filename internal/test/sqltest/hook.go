package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

// Hook makes connections whose statements a test sees.
type Hook struct {
	sqldriver.Connector
	// Before is called before each statement of a connection, and may refuse it. nil: nothing is.
	Before func(conn any, text string) error
}

// Open returns a pool of the connections, which ends with the test.
func (h *Hook) Open(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(h)
	t.Cleanup(func() { db.Close() })
	return db
}

// Connect implements driver.Connector.
func (h *Hook) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &hookedConn{inner.(sqlConn), h}, nil
}

// sqlConn is what all libraries' connections can do.
type sqlConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Pinger
}

type hookedConn struct {
	sqlConn
	hook *Hook
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *hookedConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if checker, ok := c.sqlConn.(sqldriver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

// IsValid implements driver.Validator.
func (c *hookedConn) IsValid() bool {
	validator, ok := c.sqlConn.(sqldriver.Validator)
	return !ok || validator.IsValid()
}

func (c *hookedConn) before(text string) error {
	if c.hook.Before == nil {
		return nil
	}
	return c.hook.Before(c, text)
}

// ExecContext implements driver.ExecerContext.
func (c *hookedConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.before(text); err != nil {
		return nil, err
	}
	return c.sqlConn.ExecContext(ctx, text, args)
}

// QueryContext implements driver.QueryerContext.
func (c *hookedConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.before(text); err != nil {
		return nil, err
	}
	return c.sqlConn.QueryContext(ctx, text, args)
}
