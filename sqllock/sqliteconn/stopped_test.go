//go:build soak

package sqliteconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast/driver"
)

// lateLock makes connections that stand still before they lock the database, and notes when they had it.
type lateLock struct {
	sqldriver.Connector
	locked atomic.Int64 // microseconds since 1970
}

// Connect implements driver.Connector.
func (l *lateLock) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &lateConn{inner.(*conn), l}, nil
}

type lateConn struct {
	*conn
	late *lateLock
}

// ExecContext implements driver.ExecerContext.
func (c *lateConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if text != "BEGIN IMMEDIATE" {
		return c.conn.ExecContext(ctx, text, args)
	}
	time.Sleep(5 * time.Millisecond)
	result, err := c.conn.ExecContext(ctx, text, args)
	c.late.locked.Store(time.Now().UnixMicro())
	return result, err
}

// TestStoppedBeforeLock: a step judges by the time at which it has the database to itself (P1), so the
// token of a hand-over, which is that time or later, is not from before.
func TestStoppedBeforeLock(t *testing.T) {
	t.Parallel()
	inner, err := sqlite.NewConnector(DSN(filepath.Join(t.TempDir(), "locks.db")))
	if err != nil {
		t.Fatal(err)
	}
	l := &lateLock{Connector: connector{inner}}
	db := sql.OpenDB(l)
	defer db.Close()
	d, err := New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}
	held, err := d.Try(t.Context(), request("holder"))
	if err != nil {
		t.Fatal(err)
	}
	q := d.(driver.Queuer)
	if _, err := q.Enqueue(t.Context(), request("next")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	l.locked.Store(0)
	if err := d.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
		t.Fatal(err)
	}
	locked := l.locked.Load()
	g, err := q.Wait(t.Context(), request("next"))
	if err != nil || locked == 0 || int64(g.Token) < locked {
		t.Errorf("P1: handed over with token %d, %v; the database was locked at %d", g.Token, err, locked)
	}
}
