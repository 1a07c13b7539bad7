package mysqlconn

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestPending: a hold that is not committed is never reported as held.
func TestPending(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin, other := openDB(t, server, ""), openIn(t, server.URL())
		set := func(variable string) {
			exec(t, admin, "SET GLOBAL "+variable)
		}
		run := func(conn *sql.Conn, text string) {
			exec(t, conn, text)
		}
		for _, c := range []struct{ completion, params string }{
			{"CHAIN", "?multiStatements=true"}, {"CHAIN", ""}, {"RELEASE", "?multiStatements=true"},
		} {
			t.Run(c.completion+c.params, func(t *testing.T) {
				set("completion_type = '" + c.completion + "'")
				defer set("completion_type = NO_CHAIN")
				db := oneConn(openDB(t, server, c.params))
				d := overPool(t, db)
				sqltest.Pending(t, db, d, other, true, func(conn *sql.Conn) {
					conn.Close()
					inTransactions(t, d)
				})
			})
		}
		config, err := mysql.ParseDSN("root@tcp(" + server.Addr + ")/test")
		must(t, err)
		connector, err := mysql.NewConnector(config)
		must(t, err)
		wrapped := (&sqltest.Hook{Connector: connector}).Open(t) // as those of libraries that measure statements
		for name, db := range map[string]*sql.DB{"": openDB(t, server, ""), " of a wrapped pool": wrapped} {
			oneConn(db)
			d := overPool(t, db)
			t.Run("a transaction left open"+name, func(t *testing.T) {
				sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) { run(conn, "BEGIN") })
			})
			t.Run("autocommit off"+name, func(t *testing.T) {
				sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) { run(conn, "SET autocommit = 0") })
			})
			t.Run("nothing"+name, func(t *testing.T) { sqltest.Pending(t, db, d, other, true, func(*sql.Conn) {}) })
		}
		t.Run("the server turns autocommit off", func(t *testing.T) {
			byURL, db := openIn(t, server.URL()), openDB(t, server, "")
			d := overPool(t, db)
			set("autocommit = 0")
			defer set("autocommit = 1")
			killAll(t, admin)
			sqltest.Pending(t, oneConn(openDB(t, server, "")), byURL, other, true, func(*sql.Conn) {})
			_, err := d.Try(t.Context(), driver.Request{Name: t.Name() + " pool", Owner: t.Name(), TTL: 30 * time.Second})
			if err == nil || !strings.Contains(err.Error(), "autocommit") {
				t.Errorf("a pool without autocommit was told %v", err)
			}
		})
	})
}

// TestStatusOf: the client library keeps the server's status where we look for it.
func TestStatusOf(t *testing.T) {
	conn, err := openDB(t, shared(t), "").Conn(t.Context())
	must(t, err)
	defer conn.Close()
	if err := conn.Raw(func(c any) error {
		if status, ok := statusOf(c); !ok || status != statusAutocommit {
			t.Errorf("the status of a new connection is %b, %t", status, ok)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// inTransactions has a driver write in transactions: a waiter's place, and the hand-over to it.
func inTransactions(t *testing.T, d driver.Driver) {
	t.Helper()
	first := driver.Request{Name: t.Name(), Owner: t.Name() + " first", TTL: 30 * time.Second}
	g, err := d.Try(t.Context(), first)
	must(t, err)
	next := first
	next.Owner = t.Name() + " next"
	if _, err := d.(driver.Queuer).Enqueue(t.Context(), next); err == nil {
		t.Fatal("a name was given twice")
	}
	must(t, d.Release(t.Context(), []driver.Grant{g})[0])
}

func oneConn(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(1)
	return db
}

func overPool(t *testing.T, db *sql.DB) driver.Driver {
	t.Helper()
	d, err := New(t.Context(), db, nil)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}
