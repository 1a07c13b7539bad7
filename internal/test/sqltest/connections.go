package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// Hook makes connections whose statements a test sees.
type Hook struct {
	sqldriver.Connector
	// Before is called before each statement of a connection, and may refuse it. nil: nothing is.
	Before func(conn any, text string) error
}

// Open returns a pool of the connections, which ends with the test.
func (h *Hook) Open(t *testing.T) *sql.DB {
	t.Helper()
	if h.Before == nil {
		h.Before = func(any, string) error { return nil }
	}
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

// ExecContext implements driver.ExecerContext.
func (c *hookedConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.hook.Before(c, text); err != nil {
		return nil, err
	}
	return c.sqlConn.ExecContext(ctx, text, args)
}

// QueryContext implements driver.QueryerContext.
func (c *hookedConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.hook.Before(c, text); err != nil {
		return nil, err
	}
	return c.sqlConn.QueryContext(ctx, text, args)
}

// Pool is a *sql.DB, or what tells the same of another pool.
type Pool interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// FullPool renews and releases holds while an application has all connections of the
// pool but that of renewals, and does not give them back. The pool allows more than one
// connection. Before that kill, if it is not nil, ends all connections: another must then be
// reserved.
func FullPool(t *testing.T, db Pool, d driver.Driver, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grants := take(ctx, t, d, "full", driver.Exclusive, 8)
	grants = append(grants, take(ctx, t, d, "full/read", driver.Shared, 4)...)
	if kill != nil {
		kill()
		failed := func(r driver.Renewal) bool { return r.Err != nil }
		for slices.ContainsFunc(d.Renew(ctx, grants), failed) && ctx.Err() == nil {
		}
	}
	for db.Stats().InUse < db.Stats().MaxOpenConnections {
		conn, err := db.Conn(ctx)
		must(t, err)
		defer conn.Close()
	}
	for i, r := range d.Renew(ctx, grants) {
		if err := d.Release(ctx, grants[i:i+1])[0]; r.Err != nil || err != nil {
			t.Errorf("P2: while an application has the pool, renewal and release %d are %v and %v", i, r.Err, err)
		}
	}
}

// take takes some names by a driver.
func take(ctx context.Context, t *testing.T, d driver.Driver, prefix string, mode driver.Mode, n int) (grants []driver.Grant) {
	t.Helper()
	seed := rand.Uint64() // the store may have been used before
	for i := range n {
		r := driver.Request{Name: fmt.Sprintf("%s/%x/%d", prefix, seed, i), Owner: fmt.Sprintf("%s %x %d", prefix, seed, i), Mode: mode, TTL: 30 * time.Second}
		g, err := d.Try(ctx, r)
		must(t, err)
		grants = append(grants, g)
	}
	return grants
}

// Pending takes names over a connection that leave has spoilt, as an application or a setting of the
// server may: a hold that is not committed must not be reported as held, and the next connection
// serves. The pool of d is db, which has one connection. Other is a driver of the same store. With
// healthy, leave spoils nothing.
func Pending(t *testing.T, db *sql.DB, d, other driver.Driver, healthy bool, leave func(*sql.Conn)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const names = 8
	conn, err := db.Conn(ctx)
	must(t, err)
	leave(conn)
	conn.Close()
	held := 0
	var failed error
	for i := range names {
		req := driver.Request{Name: fmt.Sprintf("%s %d", t.Name(), i), Owner: fmt.Sprintf("%s owner %d", t.Name(), i), TTL: 30 * time.Second}
		_, err := d.Try(ctx, req)
		if err != nil {
			failed = err
			continue
		}
		held++
		req.Owner = fmt.Sprintf("%s other %d", t.Name(), i)
		if _, err := other.Try(ctx, req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: %s is held and not committed: another is told %v", req.Name, err)
		}
	}
	if held < names-1 || healthy && failed != nil {
		t.Errorf("only %d of %d names could be taken: %v", held, names, failed)
	}
}

// Deadlines holds back a server's replies and ends the contexts of calls. All calls must
// return, with the context's error among theirs (P11). The pool connects through the proxy,
// and no timeout of its own ends the wait. open makes a driver over a pool.
func Deadlines(t *testing.T, proxy *chaos.Proxy, db *sql.DB, open func(context.Context, *sql.DB) (driver.Driver, error)) {
	t.Helper()
	const moment = 30 * time.Millisecond
	d, err := open(t.Context(), db)
	must(t, err)
	defer d.Close()
	defer proxy.Heal()
	held := take(t.Context(), t, d, "deadline", driver.Exclusive, 1)
	q := d.(fullDriver)
	calls := map[string]func(context.Context) error{
		"New": func(ctx context.Context) error {
			_, err := open(ctx, db)
			return err
		},
		"Try": func(ctx context.Context) error {
			_, err := d.Try(ctx, driver.Request{Name: "deadline/driver", Owner: "an owner", TTL: time.Second})
			return err
		},
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, held)[0].Err },
		"Release": func(ctx context.Context) error { return d.Release(ctx, held)[0] },
		"Inspect": func(ctx context.Context) error {
			_, err := q.Inspect(ctx, held[0].Name)
			return err
		},
		"Break": func(ctx context.Context) error { return q.Break(ctx, held[0].Name, held[0].Token) },
	}
	for name, call := range calls {
		for _, connected := range []bool{true, false} {
			for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
				idle, lasts := -1, moment
				if connected {
					idle = 4
				}
				if want == context.Canceled {
					lasts = time.Hour
				}
				db.SetMaxIdleConns(idle)
				must(t, db.PingContext(t.Context()))
				proxy.Hold(chaos.ToClient, "")
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				if want == context.Canceled {
					time.AfterFunc(moment, cancel)
				}
				if err := call(ctx); !errors.Is(err, want) || errors.Is(err, context.Canceled) != (want == context.Canceled) {
					t.Errorf("P11: %s, connected: %v, after the end of its context, %v: the error is %v", name, connected, want, err)
				}
				cancel()
				proxy.Heal()
			}
		}
	}
}
