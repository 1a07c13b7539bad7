package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"os"
	"testing"
	"time"
)

// idleServer is a database that is connected to, and asked nothing.
type idleServer struct{ sqldriver.Conn }

func (s idleServer) Connect(context.Context) (sqldriver.Conn, error) { return s, nil }
func (idleServer) Driver() sqldriver.Driver                          { return nil }
func (idleServer) Close() error                                      { return nil }

// TestReserveAfterErrors: the connection in reserve stays when others were quicker to
// write, and is replaced when it has ended. A renewal after that does not come upon it.
func TestReserveAfterErrors(t *testing.T) {
	conflict := errors.New("a deadlock")
	library := Library{Failure: func(err error) Failure {
		if err == conflict {
			return Conflict
		}
		return Unknown
	}}
	for name, c := range map[string]struct {
		err     error
		discard bool
		stays   bool
	}{
		"others were quicker":             {err: errChanged, stays: true},
		"a deadlock":                      {err: conflict, stays: true},
		"a deadlock inside a transaction": {err: conflict, discard: true},
		"the connection had ended":        {err: sqldriver.ErrBadConn, discard: true},
		"who knows":                       {err: errors.New("connection reset")},
	} {
		t.Run(name, func(t *testing.T) {
			db := sql.OpenDB(idleServer{})
			defer db.Close()
			db.SetMaxOpenConns(2)
			p := joinPool(db, nil)
			defer p.leave()
			request := func(urgency priority, f func(*sql.Conn) error) error {
				connected, err := p.with(t.Context(), urgency, library.judge, f)
				if !connected {
					t.Errorf("nothing was sent: %v", err)
				}
				return err
			}
			if err := request(taking, func(*sql.Conn) error { return nil }); err != nil {
				t.Fatal(err)
			}
			kept := p.reserve.conn
			if kept == nil {
				t.Fatal("there is no connection in reserve")
			}
			err := request(renewing, func(conn *sql.Conn) error {
				if conn != kept {
					t.Error("the renewal has another connection")
				}
				if c.discard {
					conn.Raw(func(any) error { return sqldriver.ErrBadConn })
				}
				return c.err
			})
			if err != c.err {
				t.Error(err)
			}
			if (p.reserve.conn == kept) != c.stays {
				t.Errorf("it stays: %v", !c.stays)
			}
			if err := request(renewing, func(*sql.Conn) error { return nil }); err != nil {
				t.Errorf("P2: the next renewal: %v", err)
			}
		})
	}
}

// lateTimer is a context whose deadline has passed, though its timer has not run.
type lateTimer struct{ context.Context }

func (lateTimer) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// silentServer is one to which the dialling ends with its deadline.
type silentServer struct{ idleServer }

func (silentServer) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, os.ErrDeadlineExceeded
}

// TestLateTimer: a library that sets a deadline on its connection may return before the
// context's own timer has run. The error is the context's all the same (P11).
func TestLateTimer(t *testing.T) {
	db := sql.OpenDB(silentServer{})
	defer db.Close()
	library := Library{Failure: func(error) Failure { return Unknown }}
	if _, err := New(lateTimer{t.Context()}, db, Postgres, library, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("P11: New after its deadline: %v", err)
	}
}
