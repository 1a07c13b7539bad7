package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// LostMeanwhile releases many holds at a time, of which the store ends one just before the statement that
// frees them: that one was lost, and its release says so. Lose makes the store end the hold of a name.
func LostMeanwhile(t *testing.T, inner sqldriver.Connector, open func(*sql.DB) (driver.Driver, error), lose func(name string)) {
	t.Helper()
	hook := &before{Connector: inner}
	db := sql.OpenDB(hook)
	defer db.Close()
	d, err := open(db)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const holds, lost = 5, 3
	var grants []driver.Grant
	for i := range holds {
		g, err := d.Try(t.Context(), driver.Request{Name: fmt.Sprintf("%s %d", t.Name(), i), Owner: fmt.Sprintf("%s owner %d", t.Name(), i), TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	hook.set(func(text string) bool {
		if !strings.Contains(text, "crowd = 0 FOR UPDATE") && !strings.Contains(text, "owner = ''") {
			return false
		}
		lose(grants[lost].Name)
		return true
	})
	for i, err := range d.Release(t.Context(), grants) {
		if i == lost && !errors.Is(err, driver.ErrNotHeld) || i != lost && err != nil {
			t.Errorf("release %d of %d: %v; hold %d was lost before", i, holds, err, lost)
		}
	}
	if hook.set(nil) {
		t.Error("no statement has freed the holds")
	}
}

// before makes connections that call a function before each statement, until it returns true.
type before struct {
	sqldriver.Connector
	mu sync.Mutex
	f  func(text string) bool
}

// set sets the function, and reports whether there was one still.
func (b *before) set(f func(string) bool) (had bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	had, b.f = b.f != nil, f
	return had
}

func (b *before) call(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.f != nil && b.f(text) {
		b.f = nil
	}
}

// Connect implements driver.Connector.
func (b *before) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := b.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &beforeConn{pollsConn{inner.(sqlConn), nil}, b}, nil
}

type beforeConn struct {
	pollsConn
	before *before
}

// QueryContext implements driver.QueryerContext.
func (c *beforeConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.before.call(text)
	return c.sqlConn.QueryContext(ctx, text, args)
}

// ExecContext implements driver.ExecerContext.
func (c *beforeConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.before.call(text)
	return c.sqlConn.ExecContext(ctx, text, args)
}
