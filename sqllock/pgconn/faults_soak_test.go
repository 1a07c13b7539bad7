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
			server := testserver.StartPostgres(t)
			return server, server.Addr
		},
		URL:        func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" },
		Pushes:     "LISTEN",
		Goroutines: 3, // each hold is two commits
		Unnoticed:  true,
	})
}

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
	t.Run("a dead crowd", func(t *testing.T) {
		sqltest.DeadCrowd(t, func() driver.Driver { return dial(t, server, func(db *sql.DB) { db.SetMaxOpenConns(2) }) })
	})
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run("many at once, by "+mode, func(t *testing.T) {
			d, err := openURL(t.Context(), server.URL("postgres")+"&default_query_exec_mode="+mode)
			must(t, err)
			sqltest.ManyAtOnce(t, d)
		})
	}
	t.Run("a client stands still", func(t *testing.T) {
		other, err := New(t.Context(), openDB(t, server), &sqllock.Options{Prefix: "stall"})
		must(t, err)
		sqltest.Stall(t, together, func(stall func(context.Context, *sql.Conn, []sqllock.Statement) error) driver.Driver {
			db := openDB(t, server)
			library := libraryFor(asPool(db))
			library.Together = stall
			stalls, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Prefix: "stall"})
			must(t, err)
			return stalls
		}, other)
	})
	connections := func() (n int) {
		must(t, admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&n))
		return n - admin.Stats().OpenConnections
	}
	for what, change := range map[string]func(*sqllock.Library){"": func(*sqllock.Library) {}, ", polled for": func(l *sqllock.Library) { l.Learn = nil }} {
		t.Run("many waiters"+what, func(t *testing.T) {
			db := openDB(t, server)
			library := libraryFor(asPool(db))
			change(&library)
			d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Prefix: "many", Poll: time.Minute})
			must(t, err)
			awaitListening(t)
			sqltest.OneKept(t, db, d, connections)
		})
	}
	t.Run("statements", func(t *testing.T) { statementsCount(t, server) })
	t.Run("a role that may not create", func(t *testing.T) { mayNotCreate(t, server, admin) })
	// Last: what all of the above has left in the log.
	for line := range strings.Lines(server.Log()) {
		if strings.Contains(line, "ERROR") && !strings.Contains(line, "does not exist") && !strings.Contains(line, "permission denied") &&
			!strings.Contains(line, "could not serialize") {
			t.Errorf("the server's log has %s", line)
		}
	}
}

func openWith(t *testing.T, server *testserver.Postgres, prefix string, poll time.Duration) driver.Driver {
	t.Helper()
	d, err := New(t.Context(), openDB(t, server), &sqllock.Options{Prefix: prefix, Poll: poll, MaxTTL: 24 * time.Hour})
	must(t, err)
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
	must(t, err)
	var statements counter
	config.Tracer = &statements
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	d, err := New(t.Context(), db, &sqllock.Options{Prefix: prefix})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	awaitListening(t) // by a statement
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
	r := driver.Request{Name: "n", Owner: "a", TTL: 30 * time.Second}
	var g driver.Grant
	costs("taking a free name", 1, func() { g, _ = d.Try(ctx, r) })
	costs("renewing", 1, func() { d.Renew(ctx, []driver.Grant{g}) })
	waiter := driver.Request{Name: "n", Owner: "b", TTL: 30 * time.Second}
	costs("being refused", 2, func() { d.Try(ctx, waiter) })
	costs("taking a place", 2, func() { d.(driver.Queuer).Enqueue(ctx, waiter) })
	costs("confirming a place", 2, func() { d.(driver.Queuer).Enqueue(ctx, waiter) })
	costs("handing over", 1, func() { d.Release(ctx, []driver.Grant{g}) })
	g, err := d.(driver.Queuer).Wait(ctx, waiter)
	must(t, err)
	// The row says that there may be places: only a step that locks it may say that there are none.
	costs("releasing, the last of a crowd", 3, func() { d.Release(ctx, []driver.Grant{g}) })
	g, err = d.Try(ctx, r)
	must(t, err)
	costs("releasing", 1, func() { d.Release(ctx, []driver.Grant{g}) })

	var grants []driver.Grant
	for i := range 1000 {
		g, err := d.Try(ctx, driver.Request{Name: fmt.Sprint("many/", i), Owner: fmt.Sprint("owner ", i), TTL: 30 * time.Second})
		must(t, err)
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
	exec(t, admin, sqllock.Schema(sqllock.Postgres, "given"))
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON given_locks, given_places, given_meta TO clerk")
	d, err := openURL(t.Context(), url)
	must(t, err)
	defer d.Close()
	if _, err := d.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: 30 * time.Second}); err != nil {
		t.Error(err)
	}
}

// TestPgbouncer: the driver notices a pooler, and logs that waiters poll. Locks work in both modes.
func TestPgbouncer(t *testing.T) {
	server := testserver.StartPostgres(t)
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			pooler := testserver.StartPgbouncer(t, server, mode)
			var log bytes.Buffer
			db, err := sql.Open("pgx", pooler.URL("postgres"))
			must(t, err)
			defer db.Close()
			d, err := New(t.Context(), db, &sqllock.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			must(t, err)
			if d.(driver.Notifier).Losses() != nil || !strings.Contains(d.Caps().Guarantees.Summary, "waiters poll") || !strings.Contains(log.String(), "waiters poll") {
				t.Errorf("the driver took the pooler for a server: Guarantees say %q, the log %q", d.Caps().Guarantees.Summary, log.String())
			}
			sqltest.ManyAtOnce(t, d)
			for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
				d, err := openURL(t.Context(), pooler.URL("postgres")+"&default_query_exec_mode="+mode)
				if err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
				sqltest.ManyAtOnce(t, d)
			}
		})
	}
}

// TestBusy: a busy client keeps its leases, though replies are late (P2).
func TestBusy(t *testing.T) {
	server := testserver.StartPostgres(t)
	proxy := chaos.StartProxy(t, server.Addr)
	busytest.Run(t, func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1))
		must(t, err)
		return locks
	})
}

// TestDeadlines: an ended context is told as such, also by an attempt to connect.
func TestDeadlines(t *testing.T) {
	server := testserver.StartPostgres(t)
	proxy := chaos.StartProxy(t, server.Addr)
	config, err := pgx.ParseConfig(strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1))
	must(t, err)
	config.ConnectTimeout = time.Hour
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	sqltest.Deadlines(t, proxy, db, func(ctx context.Context, db *sql.DB) (driver.Driver, error) { return New(ctx, db, nil) })
}
