//go:build soak

package pgconn

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// crowd is how many clients want one name, each with connections of its own.
var crowd = testserver.Long(16, 64)

// TestServer has the tests that need a server and change nothing for others.
func TestServer(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	t.Run("twin", func(t *testing.T) { sqltest.Twin(t, openWith(t, server, "twin", sqltest.TwinPoll)) })
	t.Run("twin at the strictest isolation", func(t *testing.T) {
		exec(t, admin, "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
		defer exec(t, admin, "ALTER ROLE postgres RESET default_transaction_isolation")
		sqltest.Twin(t, openWith(t, server, "strict", sqltest.TwinPoll))
	})
	t.Run("start together", func(t *testing.T) {
		sqltest.StartTogether(t, func() (driver.Driver, error) {
			return openURL(t.Context(), server.URL("postgres")+"&hf.tables=together")
		})
	})
	t.Run("the clock is set back", func(t *testing.T) {
		sqltest.ClockBack(t, openWith(t, server, "back", 0), func(by time.Duration) {
			exec(t, admin, "UPDATE back_locks SET taken = taken + $1, expires = expires + $1, version = version + $1, token = token + $1", by.Microseconds())
		})
	})
	t.Run("blocks of tokens", func(t *testing.T) {
		sqltest.Blocks(t, openWith(t, server, "blocks", 0), openWith(t, server, "blocks", 0))
	})
	own := func(t *testing.T, prefix string) func() driver.Driver {
		return func() driver.Driver {
			db := openDB(t, server)
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
	t.Run("batches", func(t *testing.T) { sqltest.Batches(t, openWith(t, server, "batches", sqltest.TwinPoll)) })
	t.Run("contended", func(t *testing.T) {
		for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
			var drivers []driver.Driver
			for range 3 {
				d, err := openURL(t.Context(), server.URL("postgres")+"&hf.tables=contended&default_query_exec_mode="+mode)
				if err != nil {
					t.Fatal(err)
				}
				drivers = append(drivers, d)
			}
			sqltest.Contended(t, drivers...)
		}
	})
	t.Run("a client stands still", func(t *testing.T) {
		db, stall := openDB(t, server), sqltest.NewStall()
		config, err := configOf(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		library := libraryFor(config)
		library.Together = stall.Together(library.Together)
		stalls, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Prefix: "stall"})
		if err != nil {
			t.Fatal(err)
		}
		other, err := New(t.Context(), openDB(t, server), &sqllock.Options{Prefix: "stall"})
		if err != nil {
			t.Fatal(err)
		}
		stall.Test(t, stalls, other)
	})
	t.Run("a late place", func(t *testing.T) {
		l := sqltest.LatePlace{
			Open: func(t *testing.T, prefix string, poll time.Duration) driver.Driver {
				return openWith(t, server, prefix, poll)
			},
			Admin: admin, Kill: "SELECT pg_terminate_backend({id})", Writes: "WITH",
			Waits: "SELECT pid, query FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
			Fails: map[string]sqltest.LateFailure{"killed": sqltest.Killed},
		}
		l.Test(t)
	})
	t.Run("one connection", func(t *testing.T) {
		sqltest.OneConnection(t, dial(t, server, func(db *sql.DB) { db.SetMaxOpenConns(1) }))
	})
	connections := func() (n int) {
		if err := admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n - admin.Stats().OpenConnections
	}
	t.Run("many waiters", func(t *testing.T) {
		db := openDB(t, server)
		d, err := New(t.Context(), db, &sqllock.Options{Prefix: "many", Poll: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		sqltest.OneKept(t, db, d, connections, func(context.Context, int) {})
	})
	t.Run("polling", func(t *testing.T) { // of clients without notifications
		config, err := pgx.ParseConfig(server.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		b := sqltest.Polling{
			Connector: stdlib.GetConnector(*config),
			Open: func(ctx context.Context, db *sql.DB, o *sqllock.Options) (driver.Driver, error) {
				return sqllock.New(ctx, db, sqllock.Postgres, sqllock.Library{Failure: failure}, o)
			},
			Faults:      map[string]sqltest.Fault{"killed": sqltest.Kill(t, admin, "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%v)")},
			Connections: connections,
		}
		b.Test(t)
	})
	t.Run("connections are ended", func(t *testing.T) {
		sqltest.Outage(t, dial(t, server, nil), dial(t, server, nil), func() {
			for range 3 {
				exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
				time.Sleep(50 * time.Millisecond) // let them connect again
			}
		})
	})
	t.Run("statements", func(t *testing.T) { statementsCount(t, server) })
	t.Run("unused rows go", func(t *testing.T) { rowsGo(t, server, admin) })
	t.Run("a role that may not create", func(t *testing.T) { mayNotCreate(t, server, admin) })
	// Last: what all of the above has left in the log.
	for line := range strings.Lines(server.Log()) {
		if strings.Contains(line, "ERROR") && !strings.Contains(line, "does not exist") && !strings.Contains(line, "permission denied") &&
			!strings.Contains(line, "could not serialize") {
			t.Errorf("the server's log has %s", line)
		}
	}
}

func TestOutages(t *testing.T) {
	server := testserver.StartPostgres(t)
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

func openURL(ctx context.Context, raw string) (driver.Driver, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

func openWith(t *testing.T, server *testserver.Postgres, prefix string, poll time.Duration) driver.Driver {
	t.Helper()
	d, err := New(t.Context(), openDB(t, server), &sqllock.Options{Prefix: prefix, Poll: poll})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counted returns a driver whose pool's statements are counted.
func counted(t *testing.T, server *testserver.Postgres, prefix string) (driver.Driver, *counter) {
	t.Helper()
	config, err := pgx.ParseConfig(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var statements counter
	config.Tracer = &statements
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	d, err := New(t.Context(), db, &sqllock.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, &statements
}

// statementsCount asserts how many statements, which are round trips, things take.
func statementsCount(t *testing.T, server *testserver.Postgres) {
	d, statements := counted(t, server, "count")
	ctx := t.Context()
	costs := func(what string, most int64, f func()) {
		t.Helper()
		before := statements.n.Load()
		f()
		if n := statements.n.Load() - before; n > most {
			t.Errorf("%s took %d statements; at most %d are right", what, n, most)
		}
	}
	r := driver.Request{Name: "n", Owner: "a", TTL: time.Minute}
	var g driver.Grant
	costs("taking a free name", 1, func() { g, _ = d.Try(ctx, r) })
	costs("renewing", 1, func() { d.Renew(ctx, []driver.Grant{g}) })
	waiter := driver.Request{Name: "n", Owner: "b", TTL: time.Minute}
	costs("being refused", 1, func() { d.Try(ctx, waiter) })
	costs("taking a place", 2, func() { d.(driver.Queuer).Enqueue(ctx, waiter) })
	costs("confirming a place", 2, func() { d.(driver.Queuer).Enqueue(ctx, waiter) })
	costs("handing over", 2, func() { d.Release(ctx, []driver.Grant{g}) })
	g, err := d.(driver.Queuer).Wait(ctx, waiter)
	if err != nil {
		t.Fatal(err)
	}
	// The row says that there is a crowd: the places are read before it is written, and after.
	costs("releasing, the last of a crowd", 3, func() { d.Release(ctx, []driver.Grant{g}) })
	g, err = d.Try(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	costs("releasing", 1, func() { d.Release(ctx, []driver.Grant{g}) })

	var grants []driver.Grant
	for i := range 1000 {
		g, err := d.Try(ctx, driver.Request{Name: fmt.Sprint("many/", i), Owner: fmt.Sprint("owner ", i), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	grants[7].Owner = "a stranger" // one that is gone does not fault the others
	costs("1000 renewals, one of them of a hold that is gone", 10, func() {
		for i, r := range d.Renew(ctx, grants) {
			if want := i == 7; driver.Gone(r.Err) != want {
				t.Errorf("renewal %d returned %v", i, r.Err)
			}
		}
	})
	costs("1000 releases, one of them of a hold that is gone", 10, func() {
		for i, err := range d.Release(ctx, grants) {
			if want := i == 7; driver.Gone(err) != want {
				t.Errorf("release %d returned %v", i, err)
			}
		}
	})
	var shared []driver.Grant
	for i := range 300 {
		g, err := d.Try(ctx, driver.Request{Name: fmt.Sprint("shared/", i), Owner: fmt.Sprint("reader ", i), Mode: driver.Shared, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		shared = append(shared, g)
	}
	costs("300 renewals of shared holds, beside two round trips of batches", 5, func() {
		for i, r := range d.Renew(ctx, shared) {
			if r.Err != nil {
				t.Errorf("renewal %d of a shared hold returned %v", i, r.Err)
			}
		}
	})
}

// rowsGo asserts that a row that was not used for long is removed, and one that is
// held is not.
func rowsGo(t *testing.T, server *testserver.Postgres, admin *sql.DB) {
	d := openWith(t, server, "clean", 0)
	ask := func(name string) driver.Grant {
		g, err := d.Try(t.Context(), driver.Request{Name: name, Owner: "an owner of " + name, TTL: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	ask("held")
	unused := ask("unused")
	if err := d.Release(t.Context(), []driver.Grant{unused})[0]; err != nil {
		t.Fatal(err)
	}
	const twoHours = int64(2 * time.Hour / time.Microsecond)
	exec(t, admin, "UPDATE clean_locks SET version = version - $1, token = token - $1", twoHours)
	if err := d.(interface{ Clean(context.Context) error }).Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names string
	if err := admin.QueryRow("SELECT string_agg(name, ' ') FROM clean_locks").Scan(&names); err != nil || names != "held" {
		t.Errorf("after cleaning the rows are %q, %v; want held", names, err)
	}
	if again := ask("unused"); again.Token <= unused.Token {
		t.Errorf("P3: the token of a name that was forgotten is %d after %d", again.Token, unused.Token)
	}
}

// mayNotCreate: without the tables a role without rights is told what to do; with
// them it needs no other rights.
func mayNotCreate(t *testing.T, server *testserver.Postgres, admin *sql.DB) {
	exec(t, admin, "CREATE ROLE clerk LOGIN")
	url := strings.Replace(server.URL("postgres"), "postgres@", "clerk@", 1) + "&hf.tables=given"
	if d, err := openURL(t.Context(), url); err == nil {
		d.Close()
		t.Fatal("a role created tables without the right")
	} else if !strings.Contains(err.Error(), "holdfast schema") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	exec(t, admin, sqllock.Postgres.Schema("given"))
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON given_locks, given_places, given_meta TO clerk")
	d, err := openURL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Minute}); err != nil {
		t.Error(err)
	}
}

// TestPgbouncer: in session mode notifications arrive, in transaction mode they do not, which
// the driver notices and logs. Locks work in both.
func TestPgbouncer(t *testing.T) {
	server := testserver.StartPostgres(t)
	for mode, hears := range map[string]bool{"session": true, "transaction": false} {
		t.Run(mode, func(t *testing.T) {
			pooler := testserver.StartPgbouncer(t, server, mode)
			var log bytes.Buffer
			d := openLogged(t, pooler.URL("postgres"), slog.New(slog.NewTextHandler(&log, nil)))
			if got := d.(driver.Notifier).Losses() != nil; got != hears {
				t.Errorf("the driver hears notifications: %v", got)
			}
			if said := strings.Contains(log.String(), "waiters poll"); said == hears {
				t.Errorf("the log says %q", log.String())
			}
			if said := strings.Contains(d.Caps().Guarantees.Summary, "waiters poll"); said == hears {
				t.Errorf("Guarantees say %q", d.Caps().Guarantees.Summary)
			}
			sqltest.OneConnection(t, d)
			for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
				var drivers []driver.Driver
				for range 2 {
					d, err := openURL(t.Context(), pooler.URL("postgres")+"&default_query_exec_mode="+mode)
					if err != nil {
						t.Fatalf("%s: %v", mode, err)
					}
					drivers = append(drivers, d)
				}
				sqltest.Contended(t, drivers...)
			}
		})
	}
}

// openLogged opens a URL as open does, with a log.
func openLogged(t *testing.T, raw string, log *slog.Logger) driver.Driver {
	t.Helper()
	db, err := sql.Open("pgx", raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	d, err := New(t.Context(), db, &sqllock.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestHandOff: a waiter that listens learns of its hand-off without asking.
func TestHandOff(t *testing.T) {
	server := testserver.StartPostgres(t)
	d, err := New(t.Context(), openDB(t, server), &sqllock.Options{Poll: time.Minute}) // asking again would be too late
	if err != nil {
		t.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := locks.RWMutex("n", nil).Write.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		l, err := locks.RWMutex("n", nil).Read.Acquire(ctx)
		if err == nil {
			err = l.Release()
		}
		done <- err
	}()
	for info, _ := locks.Inspect(ctx, "n"); len(info.Waiters) == 0 && ctx.Err() == nil; info, _ = locks.Inspect(ctx, "n") {
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("P7: the waiter: %v", err)
	}
}
