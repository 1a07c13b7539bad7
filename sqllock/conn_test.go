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

// clientOver returns a client that has made no contact.
func clientOver(db *sql.DB, failure func(error) Failure) *client {
	c := &client{pool: joinPool(db, Library{}), dialect: Postgres, library: Library{Failure: failure}}
	c.life, c.stop = context.WithCancel(context.Background())
	return c
}

// TestOwnAfterErrors: the connection of renewals stays when others were quicker to write, and is replaced when it has
// ended. A renewal after that does not come upon it.
func TestOwnAfterErrors(t *testing.T) {
	conflict, unknown := errors.New("a deadlock"), errors.New("the server went away")
	c := clientOver(sql.OpenDB(idleServer{}), func(err error) Failure {
		if err == conflict {
			return Conflict
		}
		return Unknown
	})
	defer c.pool.leave()
	defer c.stop()
	request := func(u urgency, errs ...error) (used *sql.Conn) {
		_, err := c.request(t.Context(), u, func(_ context.Context, conn *sql.Conn) error {
			used = conn
			if len(errs) == 0 {
				return nil
			}
			err := errs[0]
			errs = errs[1:]
			return err
		})
		if (err == nil) != (len(errs) == 0) && err != unknown {
			t.Errorf("request %d returned %v", u, err)
		}
		return used
	}
	own := request(usual)
	if got := request(usual); got == own {
		t.Error("P2: another request has the connection of renewals")
	}
	if request(renewing) != own || request(renewing, conflict) != own {
		t.Error("P2: renewals do not have their connection, or lose it when others were quicker")
	}
	for _, end := range []func(){
		func() { request(renewing, unknown) },
		func() { discard(own) }, // as in a transaction that has failed
	} {
		end()
		if got := request(renewing, conflict); got == own {
			t.Error("P2: a renewal has a connection that has ended")
		}
		own = request(usual) // the pool's next
		own = request(renewing)
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

// TestLateTimer: a library that sets a deadline on its connection may return before the context's own timer has run. The
// error is the context's all the same (P11).
func TestLateTimer(t *testing.T) {
	db := sql.OpenDB(silentServer{})
	defer db.Close()
	library := Library{Failure: func(error) Failure { return Unknown }}
	if _, err := New(lateTimer{t.Context()}, db, Postgres, library, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("P11: New after its deadline: %v", err)
	}
}
