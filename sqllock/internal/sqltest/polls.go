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

// Polls stands between clients and their database. It counts the statements of their
// pollers, and can inject a fault into those and no others: then waiters learn by their own
// questions only what has become of them. Its methods are safe for concurrent use.
type Polls struct {
	mu     sync.Mutex
	more   chan struct{} // closed at the next poll
	asked  int           // how many polls there were, faulty ones too
	names  int           // of the last one
	fault  Fault         // nil: polls pass
	faulty context.Context
	over   func() // ends it
}

// Fault is what becomes of a poll. The context ends with the statement's, or when another
// fault is injected.
type Fault func(context.Context, *poll) (sqldriver.Rows, error)

// commits is what SQLite's change detector asks.
const commits = "PRAGMA data_version"

// poll is a statement of a poller.
type poll struct {
	conn sqldriver.QueryerContext
	what string // text and, but for commits, arguments
	pass func() (sqldriver.Rows, error)
}

// NewPolls returns polls without a fault.
func NewPolls() *Polls { return &Polls{more: make(chan struct{}), over: func() {}} }

// DB returns a pool of the connector's connections, whose polls it counts. It
// ends with the test.
func (l *Polls) DB(t *testing.T, inner sqldriver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(pollsConnector{inner, l})
	t.Cleanup(func() { db.Close() })
	return db
}

// Inject gives polls a fault from now on. With nil they pass again.
func (l *Polls) Inject(fault Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over()
	l.fault = fault
	l.faulty, l.over = context.WithCancel(context.Background())
}

// count returns how many polls there were, and for how many names the last one was.
func (l *Polls) count() (asked, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, l.names
}

// await waits until there were so many polls.
func (l *Polls) await(ctx context.Context, t *testing.T, asked int) {
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
			t.Fatalf("P7: there was no poll: %v", ctx.Err())
		}
	}
}

// refuse fails each poll.
func refuse(context.Context, *poll) (sqldriver.Rows, error) {
	return nil, errors.New("the test refuses polls")
}

// hang lets polls take as long as the client lets them.
func hang(ctx context.Context, _ *poll) (sqldriver.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// breakDown lets the connection of each poll be a broken one.
func breakDown(context.Context, *poll) (sqldriver.Rows, error) {
	return nil, sqldriver.ErrBadConn
}

// Kill lets the server end the connection of each poll. id is a statement that returns what
// the server calls the connection; kill, with that in place of %v, ends it.
func Kill(t *testing.T, admin *sql.DB, id, kill string) Fault {
	return func(ctx context.Context, l *poll) (sqldriver.Rows, error) {
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
			t.Errorf("a poll's connection cannot be ended: %v", err)
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

// freeze lets each poll see what it saw at first, as on a replica that has stopped.
func freeze() Fault {
	var mu sync.Mutex
	first := map[string]*frozen{}
	return func(_ context.Context, l *poll) (sqldriver.Rows, error) {
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

type pollsConnector struct {
	sqldriver.Connector
	polls *Polls
}

// Connect implements driver.Connector.
func (c pollsConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &pollsConn{inner.(sqlConn), c.polls}, nil
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

type pollsConn struct {
	sqlConn
	polls *Polls
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *pollsConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if checker, ok := c.sqlConn.(sqldriver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}

// IsValid implements driver.Validator.
func (c *pollsConn) IsValid() bool {
	validator, ok := c.sqlConn.(sqldriver.Validator)
	return !ok || validator.IsValid()
}

// QueryContext implements driver.QueryerContext.
func (c *pollsConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	pass := func() (sqldriver.Rows, error) { return c.sqlConn.QueryContext(ctx, text, args) }
	versions := strings.HasPrefix(text, "SELECT p.name, p.owner, (SELECT count(*) FROM ")
	if !versions && text != commits {
		return pass()
	}
	l := c.polls
	l.mu.Lock()
	if l.asked++; versions {
		l.names = max(len(args), strings.Count(text, "x'")) / 2 // names and owners, in MySQL in the text
	}
	close(l.more)
	l.more = make(chan struct{})
	fault, faulty := l.fault, l.faulty
	l.mu.Unlock()
	if fault == nil {
		return pass()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(faulty, cancel)()
	what := text
	if versions {
		what = fmt.Sprint(text, args)
	}
	return fault(ctx, &poll{c.sqlConn, what, pass})
}
