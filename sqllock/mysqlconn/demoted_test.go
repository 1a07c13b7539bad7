//go:build soak

package mysqlconn

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// app makes a user who may do what locks need, and no more.
func app(t *testing.T, server *testserver.MySQL) *sql.DB {
	t.Helper()
	admin := openDB(t, server, "")
	for _, text := range []string{"CREATE USER app@localhost IDENTIFIED BY 'x'", "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO app@localhost"} {
		exec(t, admin, text)
	}
	return admin
}

// TestDemoted: when an address leads to another primary, and the old one stays up and read-only, a client
// finds the new one by itself, and is told nothing by the old one.
func TestDemoted(t *testing.T) {
	for what, start := range map[string]func(testing.TB, ...string) *testserver.MySQL{"MariaDB": testserver.StartMariaDB, "MySQL": testserver.StartMySQL} {
		t.Run(what, func(t *testing.T) {
			before, after := start(t), start(t)
			admin := app(t, before)
			app(t, after)
			proxy := chaos.StartProxy(t, before.Addr)
			open := func() *holdfast.Client {
				locks, err := holdfast.Open(t.Context(), "mysql://app:x@"+proxy.Addr+"/test")
				must(t, err)
				t.Cleanup(func() { locks.Close() })
				return locks
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			locks := open()
			old, err := locks.Mutex("x", nil).Acquire(ctx)
			must(t, err)
			exec(t, admin, "SET GLOBAL read_only = 1")
			proxy.Redirect(after.Addr)
			if _, err := open().Mutex("x", nil).Acquire(ctx); err != nil {
				t.Fatal(err)
			}
			if err := locks.CheckSequencer(ctx, old.Sequencer()); err == nil {
				t.Errorf("%s counts as the current hold: a server that was demoted says so", old.Sequencer())
			}
			if _, err := locks.Mutex("x", nil).TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("P1: x is held at the new primary, and a client is told %v", err)
			}
			if l, err := locks.Mutex("y", nil).TryAcquire(ctx); err != nil {
				t.Errorf("the client does not find the new primary: %v", err)
			} else {
				l.Release()
			}
		})
	}
}

// TestReadOnly: a server that takes no writes answers no question about locks, even of a user whom it
// would let write.
func TestReadOnly(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := app(t, server)
		for _, user := range []string{"root", "app:x"} {
			u := strings.Replace(server.URL(), "root", user, 1)
			d, other := openIn(t, u), openIn(t, u)
			take := func(name string, mode driver.Mode) driver.Grant {
				g, err := d.Try(t.Context(), driver.Request{Name: user + name, Owner: user + name, Mode: mode, TTL: 30 * time.Second})
				must(t, err)
				return g
			}
			held, free := take(" held", driver.Exclusive), take(" free", driver.Exclusive)
			must(t, d.Release(t.Context(), []driver.Grant{free})[0])
			readers := []driver.Grant{take(" read", driver.Shared), take(" read too", driver.Shared)}
			exec(t, admin, "SET GLOBAL read_only = 1")
			c := other.(driver.Operator)
			for what, ask := range map[string]func() error{
				"Inspect":       func() error { _, err := c.Inspect(t.Context(), held.Name); return err },
				"Inspect, free": func() error { _, err := c.Inspect(t.Context(), "nobody has this"); return err },
				"List": func() (err error) {
					c.List(t.Context(), "nothing begins so")(func(_ driver.Info, e error) bool { err = e; return true })
					return err
				},
				"Try": func() error {
					_, err := other.Try(t.Context(), driver.Request{Name: held.Name, Owner: "another", Mode: driver.Shared, TTL: 30 * time.Second})
					return err
				},
				"Try, free":        func() error { _, err := other.Try(t.Context(), free.Request); return err },
				"Renew, exclusive": func() error { return d.Renew(t.Context(), []driver.Grant{held})[0].Err },
				"Renew": func() error {
					r := d.Renew(t.Context(), readers)
					if r[1].Err == nil {
						return nil
					}
					return r[0].Err
				},
			} {
				if err := ask(); err == nil || !strings.Contains(err.Error(), "takes no writes") {
					t.Errorf("%s of %s, %s: a read-only server was believed: %v", user, held.Name, what, err)
				}
			}
			exec(t, admin, "SET GLOBAL read_only = 0")
			if _, err := other.Try(t.Context(), driver.Request{Name: user + " again", Owner: user, TTL: 30 * time.Second}); err != nil {
				t.Errorf("%s: the server takes writes again: %v", user, err)
			}
		}
	})
}

func TestFailure(t *testing.T) {
	for number, want := range map[uint16]sqllock.Failure{
		1290: sqllock.Demoted, 1792: sqllock.Demoted, 1836: sqllock.Demoted, 1874: sqllock.Demoted, 1047: sqllock.Demoted,
		1213: sqllock.Conflict, 1467: sqllock.Conflict, 1064: sqllock.Refused, 1317: sqllock.Unknown,
	} {
		if got := failure(&mysql.MySQLError{Number: number}); got != want {
			t.Errorf("error %d is %v, want %v", number, got, want)
		}
	}
}
