//go:build soak

package mysqlconn

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// TestServer has the tests that need a server and change nothing for others.
func TestServer(t *testing.T) { onEach(t, changeNothing) }

// crowd is how many clients want one name, each with connections of its own.
var crowd = testserver.Long(16, 64)

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
			d, err := New(t.Context(), openDB(t, server, params), &sqllock.Options{Prefix: "twin", Poll: sqltest.TwinPoll})
			if err != nil {
				t.Fatal(err)
			}
			sqltest.Twin(t, d)
			sqltest.Batches(t, d)
			other, err := New(t.Context(), openDB(t, server, params), &sqllock.Options{Prefix: "twin"})
			if err != nil {
				t.Fatal(err)
			}
			sqltest.Contended(t, d, other)
		})
	}
	t.Run("the clock is set back", func(t *testing.T) {
		sqltest.ClockBack(t, dial(t, server, nil), func(by time.Duration) {
			us := by.Microseconds()
			if _, err := admin.ExecContext(t.Context(), "UPDATE holdfast_locks SET taken = taken + ?, expires = expires + ?, version = version + ?, token = token + ?", us, us, us, us); err != nil {
				t.Fatal(err)
			}
		})
	})
	own := func(t *testing.T, prefix string) func() driver.Driver {
		return func() driver.Driver {
			db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
			db.SetMaxOpenConns(2)
			d, err := New(t.Context(), db, &sqllock.Options{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Run("a crowd", func(t *testing.T) { sqltest.Crowd(t, crowd, 6, own(t, "crowd")) })
	t.Run("a dead crowd", func(t *testing.T) { sqltest.DeadCrowd(t, own(t, "dead")) })
	t.Run("blocks of tokens", func(t *testing.T) { sqltest.Blocks(t, dial(t, server, nil), dial(t, server, nil)) })
	t.Run("start together", func(t *testing.T) {
		sqltest.StartTogether(t, func() (driver.Driver, error) { return openURL(t.Context(), server.URL()+"?hf.tables=together") })
	})
	t.Run("a client stands still", func(t *testing.T) {
		db, stall := openDB(t, server, "?interpolateParams=true&multiStatements=true"), sqltest.NewStall()
		library := libraryFor(t.Context(), db)
		library.Together = stall.Together(library.Together)
		stalls, err := sqllock.New(t.Context(), db, sqllock.MySQL, library, &sqllock.Options{Prefix: "stall"})
		if err != nil {
			t.Fatal(err)
		}
		other, err := New(t.Context(), openDB(t, server, ""), &sqllock.Options{Prefix: "stall"})
		if err != nil {
			t.Fatal(err)
		}
		stall.Test(t, stalls, other)
	})
	t.Run("one connection", func(t *testing.T) {
		sqltest.OneConnection(t, dial(t, server, func(db *sql.DB) { db.SetMaxOpenConns(1) }))
	})
	t.Run("polling", func(t *testing.T) { polling(t, server, admin) })
	t.Run("a late place", func(t *testing.T) { latePlace(t, server, admin) })
	t.Run("connections are ended", func(t *testing.T) {
		sqltest.Outage(t, dial(t, server, nil), dial(t, server, nil), func() {
			ended := 0
			for range 3 {
				ended += killAll(t, admin)
				time.Sleep(50 * time.Millisecond) // let them connect again
			}
			if ended == 0 {
				t.Error("there was no connection to end")
			}
		})
	})
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

// latePlace: in a deadlock InnoDB ends the transaction that has changed fewer rows.
func latePlace(t *testing.T, server *testserver.MySQL, admin *sql.DB) {
	l := sqltest.LatePlace{
		Open: func(t *testing.T, prefix string, poll time.Duration) driver.Driver {
			db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
			d, err := New(t.Context(), db, &sqllock.Options{Prefix: prefix, Poll: poll})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		},
		Admin: admin, Kill: "KILL {id}", Writes: "DELETE",
		Waits: "SELECT trx_mysql_thread_id, trx_query FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
	}
	l.Fails = map[string]sqltest.LateFailure{"killed": sqltest.Killed, "deadlock": sqltest.Deadlocked}
	l.Test(t)
}

func polling(t *testing.T, server *testserver.MySQL, admin *sql.DB) {
	config, err := mysql.ParseDSN("root@tcp(" + server.Addr + ")/test?interpolateParams=true&multiStatements=true")
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &mysql.NopLogger{} // which would tell of each connection that is ended
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	b := sqltest.Polling{
		Connector: connector, Open: New,
		Faults: map[string]sqltest.Fault{"killed": sqltest.Kill(t, admin, "SELECT CONNECTION_ID()", "KILL %v")},
		Connections: func() (n int) {
			if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n - admin.Stats().OpenConnections
		},
	}
	b.Test(t)
}

func TestOutages(t *testing.T) { onEach(t, outages) }

func outages(t *testing.T, server *testserver.MySQL) {
	t.Run("stop", func(t *testing.T) {
		sqltest.Outage(t, dial(t, server, nil), dial(t, server, nil), func() { server.Stop(); server.Start() })
	})
	t.Run("kill", func(t *testing.T) {
		sqltest.Outage(t, dial(t, server, nil), dial(t, server, nil), func() { server.Kill(); server.Start() })
	})
	t.Run("standstill", func(t *testing.T) {
		sqltest.Standstill(t, dial(t, server, nil), dial(t, server, nil), server.Pause, server.Resume)
	})
}

// clockIsLive: a statement that waits judges by the time at which it goes on.
func clockIsLive(t *testing.T, db *sql.DB) {
	now := sqllock.MySQL.Now()
	var before, after int64
	if err := db.QueryRowContext(t.Context(), "SELECT "+now+", SLEEP(0.2) * 0 + "+now).Scan(&before, &after); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(after-before) * time.Microsecond; got < 200*time.Millisecond {
		t.Errorf("in a statement that took 200 ms the clock went on by %v", got)
	}
	if off := time.Since(time.UnixMicro(after)); off.Abs() > 10*time.Second {
		t.Errorf("the server's time is %v off", off)
	}
}
