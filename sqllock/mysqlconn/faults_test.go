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
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestMain(m *testing.M) { faults.Main(m) }

// TestFaults spoils servers, and the processes that use them.
func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: func(t testing.TB) (faults.Server, string) {
			server := testserver.StartMariaDB(t)
			return server, server.Addr
		},
		URL:        func(addr string) string { return "mysql://root@" + addr + "/test" },
		Goroutines: 3, // each hold is two commits
		Unnoticed:  true,
	})
}

// TestServer has the tests that need a server and change nothing for others.
func TestServer(t *testing.T) { onEach(t, changeNothing) }

func changeNothing(t *testing.T, server *testserver.MySQL) {
	admin := openDB(t, server, "")
	isolation := "transaction_isolation"
	if _, err := admin.ExecContext(t.Context(), "SELECT @@transaction_isolation"); err != nil {
		isolation = "tx_isolation" // MariaDB before 11.1
	}
	for name, params := range map[string]string{
		"twin": "?interpolateParams=true&multiStatements=true",
		"twin with prepared statements, at the strictest isolation": "?" + isolation + "=%27SERIALIZABLE%27",
		"twin with matched rows, in another time zone":              "?interpolateParams=true&clientFoundRows=true&time_zone=%27-08:00%27",
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(t.Context(), openDB(t, server, params), &sqllock.Options{Prefix: "twin", Poll: sqltest.TwinPoll, MaxTTL: 24 * time.Hour})
			must(t, err)
			defer d.Close()
			sqltest.Twin(t, d)
			sqltest.ManyAtOnce(t, overPool(t, openDB(t, server, params)))
		})
	}
	t.Run("the clock is set back", func(t *testing.T) {
		sqltest.ClockBack(t, dial(t, server, nil), func(by time.Duration) {
			us := by.Microseconds()
			exec(t, admin, "UPDATE holdfast_locks SET taken = taken + ?, expires = expires + ?, version = version + ?, token = token + ?", us, us, us, us)
		})
	})
	t.Run("a dead crowd", func(t *testing.T) {
		sqltest.DeadCrowd(t, func() driver.Driver { return dial(t, server, func(db *sql.DB) { db.SetMaxOpenConns(2) }) })
	})
	t.Run("start together", func(t *testing.T) {
		sqltest.StartTogether(t, func() (driver.Driver, error) { return openURL(t.Context(), server.URL()+"?hf.tables=together") })
	})
	t.Run("a client stands still", func(t *testing.T) {
		other, err := New(t.Context(), openDB(t, server, ""), &sqllock.Options{Prefix: "stall"})
		must(t, err)
		sqltest.Stall(t, together, func(stall func(context.Context, *sql.Conn, []sqllock.Statement) error) driver.Driver {
			library := library
			library.Learn, library.Together = nil, stall
			db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
			stalls, err := sqllock.New(t.Context(), db, sqllock.MySQL, library, &sqllock.Options{Prefix: "stall"})
			must(t, err)
			return stalls
		}, other)
	})
	t.Run("one connection", func(t *testing.T) {
		sqltest.ManyAtOnce(t, dial(t, server, func(db *sql.DB) { db.SetMaxOpenConns(1) }))
	})
	t.Run("many waiters", func(t *testing.T) {
		db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
		d, err := New(t.Context(), db, &sqllock.Options{Prefix: "many", Poll: time.Minute})
		must(t, err)
		sqltest.OneKept(t, db, d, func() (n int) {
			must(t, admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'").Scan(&n))
			return n - admin.Stats().OpenConnections
		})
	})
	t.Run("bells", func(t *testing.T) { bells(t, server) })
	t.Run("the clock is live", func(t *testing.T) { clockIsLive(t, admin) })
	t.Run("a session without autocommit", func(t *testing.T) {
		d, err := New(t.Context(), openDB(t, server, "?autocommit=0"), nil)
		if err == nil {
			d.Close()
			t.Error("a pool whose statements are not committed was accepted")
		} else if !strings.Contains(err.Error(), "autocommit") {
			t.Errorf("the error does not say why: %v", err)
		}
	})
	if log := server.Log(); strings.Contains(log, "[ERROR]") || strings.Contains(log, "eadlock") {
		t.Errorf("the server's log has errors:\n%s", log)
	}
}

// bells: a waiter hears that the owner before it has released the name, though its client cannot poll (P7).
func bells(t *testing.T, server *testserver.MySQL) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	open := func(before func(any, string) error) driver.Driver {
		config, err := mysql.ParseDSN("root@tcp(" + server.Addr + ")/test?interpolateParams=true&multiStatements=true")
		must(t, err)
		connector, err := mysql.NewConnector(config)
		must(t, err)
		db := (&sqltest.Hook{Connector: connector, Before: before}).Open(t)
		d, err := New(ctx, db, &sqllock.Options{Prefix: "bells", Poll: time.Minute, MaxTTL: time.Hour})
		must(t, err)
		t.Cleanup(func() { d.Close() })
		return d
	}
	first, second, third := open(nil), open(nil), open(func(_ any, text string) error {
		if strings.HasPrefix(text, "SELECT p.name, p.owner, (SELECT count(*) FROM ") {
			return errors.New("the test refuses polls")
		}
		return nil
	})
	request := func(owner string) driver.Request {
		return driver.Request{Name: "bells", Owner: owner, TTL: time.Hour}
	}
	held, err := first.Try(ctx, request("a"))
	must(t, err)
	granted := map[string]chan driver.Grant{"b": make(chan driver.Grant, 1), "c": make(chan driver.Grant, 1)}
	for owner, d := range map[string]driver.Driver{"b": second, "c": third} {
		if _, err := d.Try(ctx, request(owner)); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Try on a held name returned %v", err)
		}
	}
	for i, d := range []driver.Driver{second, third} {
		owner := string(rune('b' + i))
		if _, err := d.(driver.Queuer).Enqueue(ctx, request(owner)); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Enqueue on a held name returned %v", err)
		}
		go func() {
			g, err := d.(driver.Queuer).Wait(ctx, request(owner))
			if err != nil {
				t.Errorf("P7: %s: %v", owner, err)
			}
			granted[owner] <- g
		}()
	}
	for i, d := range []driver.Driver{first, second} {
		must(t, d.Release(ctx, []driver.Grant{held})[0])
		next := <-granted[string(rune('b'+i))]
		if next.Token <= held.Token || !next.Claim {
			t.Fatalf("P3: granted %+v after token %d", next, held.Token)
		}
		held = next
	}
	must(t, third.Release(ctx, []driver.Grant{held})[0])
}

// clockIsLive: a statement that waits judges by the time at which it goes on.
func clockIsLive(t *testing.T, db *sql.DB) {
	now := sqllock.Now(sqllock.MySQL)
	var before, after int64
	must(t, db.QueryRowContext(t.Context(), "SELECT "+now+", SLEEP(0.2) * 0 + "+now).Scan(&before, &after))
	if got := time.Duration(after-before) * time.Microsecond; got < 200*time.Millisecond {
		t.Errorf("in a statement that took 200 ms the clock went on by %v", got)
	}
	if off := time.Since(time.UnixMicro(after)); off.Abs() > 10*time.Second {
		t.Errorf("the server's time is %v off", off)
	}
}

// TestBusy: a busy client keeps its leases, though replies are late (P2).
func TestBusy(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		proxy := chaos.StartProxy(t, server.Addr)
		busytest.Run(t, func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }, func() *holdfast.Client {
			locks, err := holdfast.Open(t.Context(), strings.Replace(server.URL(), server.Addr, proxy.Addr, 1))
			must(t, err)
			return locks
		})
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others (P2), also when all
// connections were lost before.
func TestFullPool(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "")
		for name, kill := range map[string]func(){"full": nil, "full after an outage": func() { killAll(t, admin) }} {
			t.Run(name, func(t *testing.T) {
				db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
				db.SetMaxOpenConns(4)
				sqltest.FullPool(t, db, overPool(t, db), kill)
			})
		}
	})
}

// TestDeadlines: an ended context is told as such, also by an attempt to connect.
func TestDeadlines(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		proxy := chaos.StartProxy(t, server.Addr)
		db, err := sql.Open("mysql", "root@tcp("+proxy.Addr+")/test?interpolateParams=true&multiStatements=true")
		must(t, err)
		t.Cleanup(func() { db.Close() })
		sqltest.Deadlines(t, proxy, db, func(ctx context.Context, db *sql.DB) (driver.Driver, error) { return New(ctx, db, nil) })
	})
}
