package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Looks stands between clients and their database. It counts what their lookers ask,
// and can spoil that and nothing else: then nothing but their own questions tells
// waiters what has become of them. Its methods are safe for concurrent use.
type Looks struct {
	mu       sync.Mutex
	more     chan struct{} // closed at the next look
	asked    int           // how many looks there were, spoiled ones too
	names    int           // of the last one
	spoil    Spoil         // nil: looks pass
	spoiling context.Context
	over     func() // ends it
}

// Spoil is what becomes of a look. The context ends with the client's patience, or when
// looks are spoiled otherwise.
type Spoil func(context.Context, *look) (sqldriver.Rows, error)

// commits is what SQLite's looker asks first.
const commits = "PRAGMA data_version"

// look is a statement of a looker.
type look struct {
	conn sqldriver.QueryerContext
	what string // text and, but for commits, arguments
	pass func() (sqldriver.Rows, error)
}

// NewLooks returns looks that pass.
func NewLooks() *Looks { return &Looks{more: make(chan struct{}), over: func() {}} }

// DB returns a pool of the connector's connections, on which it spoils looks. It
// ends with the test.
func (l *Looks) DB(t *testing.T, inner sqldriver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(looksConnector{inner, l})
	t.Cleanup(func() { db.Close() })
	return db
}

// Spoil spoils looks from now on. With nil they pass again.
func (l *Looks) Spoil(spoil Spoil) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over()
	l.spoil = spoil
	l.spoiling, l.over = context.WithCancel(context.Background())
}

// count returns how many looks there were, and for how many names the last one was.
func (l *Looks) count() (asked, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, l.names
}

// await waits until there were so many looks.
func (l *Looks) await(ctx context.Context, t *testing.T, asked int) {
	t.Helper()
	for {
		l.mu.Lock()
		enough, more := l.asked >= asked, l.more
		l.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("P7: nobody looked: %v", ctx.Err())
		}
	}
}

// refuse fails each look.
func refuse(context.Context, *look) (sqldriver.Rows, error) {
	return nil, errors.New("the test refuses looks")
}

// hang lets looks take as long as the client lets them.
func hang(ctx context.Context, _ *look) (sqldriver.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// breakDown lets the connection of each look be a broken one.
func breakDown(context.Context, *look) (sqldriver.Rows, error) {
	return nil, sqldriver.ErrBadConn
}

// Kill lets the server end the connection of each look: id is a statement that tells
// what it calls the connection, and kill, with that in place of %v, one that ends it.
func Kill(t *testing.T, admin *sql.DB, id, kill string) Spoil {
	return func(ctx context.Context, l *look) (sqldriver.Rows, error) {
		rows, err := l.conn.QueryContext(ctx, id, nil)
		if err != nil {
			return nil, err
		}
		which := make([]sqldriver.Value, 1)
		if err := errors.Join(rows.Next(which), rows.Close()); err != nil {
			return nil, err
		}
		if text, ok := which[0].([]byte); ok {
			which[0] = string(text)
		}
		if _, err := admin.Exec(fmt.Sprintf(kill, which[0])); err != nil {
			t.Errorf("a look's connection cannot be ended: %v", err)
			return nil, err
		}
		for { // until it has ended
			rows, err := l.pass()
			if err != nil {
				return nil, err
			}
			rows.Close()
		}
	}
}

// freeze lets each look see what it saw at first, as on a replica that has stopped.
func freeze() Spoil {
	var mu sync.Mutex
	first := map[string]*frozen{}
	return func(_ context.Context, l *look) (sqldriver.Rows, error) {
		if l.what == commits {
			// A count that a connection may have later would hide what is new then.
			return &frozen{columns: []string{"data_version"}, rows: [][]sqldriver.Value{{int64(-1)}}}, nil
		}
		rows, err := l.pass()
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		now := &frozen{columns: rows.Columns()}
		for {
			row := make([]sqldriver.Value, len(now.columns))
			if err := rows.Next(row); err == io.EOF {
				break
			} else if err != nil {
				return nil, err
			}
			for i, v := range row {
				if text, ok := v.([]byte); ok {
					row[i] = slices.Clone(text) // it is the library's
				}
			}
			now.rows = append(now.rows, row)
		}
		mu.Lock()
		defer mu.Unlock()
		if first[l.what] == nil {
			first[l.what] = now
		}
		return &frozen{columns: now.columns, rows: first[l.what].rows}, nil
	}
}

// frozen are rows that were read before.
type frozen struct {
	columns []string
	rows    [][]sqldriver.Value
}

// Columns implements driver.Rows.
func (f *frozen) Columns() []string { return f.columns }

// Close implements driver.Rows.
func (f *frozen) Close() error { return nil }

// Next implements driver.Rows.
func (f *frozen) Next(row []sqldriver.Value) error {
	if len(f.rows) == 0 {
		return io.EOF
	}
	copy(row, f.rows[0])
	f.rows = f.rows[1:]
	return nil
}

type looksConnector struct {
	sqldriver.Connector
	looks *Looks
}

// Connect implements driver.Connector.
func (c looksConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &looksConn{inner.(sqlConn), c.looks}, nil
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

type looksConn struct {
	sqlConn
	looks *Looks
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *looksConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if checker, ok := c.sqlConn.(sqldriver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

// IsValid implements driver.Validator.
func (c *looksConn) IsValid() bool {
	validator, ok := c.sqlConn.(sqldriver.Validator)
	return !ok || validator.IsValid()
}

// QueryContext implements driver.QueryerContext.
func (c *looksConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	pass := func() (sqldriver.Rows, error) { return c.sqlConn.QueryContext(ctx, text, args) }
	versions := strings.HasPrefix(text, "SELECT name, version FROM ")
	if !versions && text != commits {
		return pass()
	}
	l := c.looks
	l.mu.Lock()
	if l.asked++; versions {
		l.names = len(args)
	}
	close(l.more)
	l.more = make(chan struct{})
	spoil, spoiling := l.spoil, l.spoiling
	l.mu.Unlock()
	if spoil == nil {
		return pass()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(spoiling, cancel)()
	what := text
	if versions {
		what = fmt.Sprint(text, args)
	}
	return spoil(ctx, &look{c.sqlConn, what, pass})
}
