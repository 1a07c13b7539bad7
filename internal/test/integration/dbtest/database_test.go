//go:build soak

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the client of PostgreSQL
	_ "modernc.org/sqlite"             // the client of SQLite

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

// must ends the test at an error.
var must = testserver.Must

func TestPostgres(t *testing.T) {
	server := testserver.StartPostgres(t, "deadlock_timeout=50ms")
	run(t, &database{
		DB: open(t, "pgx", server.URL("postgres")), dialect: txlock.Postgres,
		levels:  []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		waiting: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
	})
}

// TestMariaDB runs the cases with snapshots that only fix what is seen, and with those
// that also refuse writes, the default from MariaDB 11.6 on.
func TestMariaDB(t *testing.T) {
	server := testserver.StartMariaDB(t)
	for _, refusing := range []string{"OFF", "ON"} {
		t.Run("innodb_snapshot_isolation="+refusing, func(t *testing.T) {
			d := onMySQL(t, server, map[string]string{"innodb_snapshot_isolation": refusing}, "information_schema")
			d.refusing = refusing == "ON"
			run(t, d)
		})
	}
}

// TestMySQL runs the cases on MySQL 8, whose snapshots only fix what is seen.
func TestMySQL(t *testing.T) {
	run(t, onMySQL(t, testserver.StartMySQL(t), nil, "performance_schema"))
}

// onMySQL returns a database whose server counts in a schema what waits.
func onMySQL(t *testing.T, server *testserver.MySQL, params map[string]string, counts string) *database {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", server.Addr, "root", "test"
	config.Logger, config.Params = &mysql.NopLogger{}, params
	return &database{
		DB: open(t, "mysql", config.FormatDSN()), dialect: txlock.MySQL,
		levels:  []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		waiting: "SELECT variable_value FROM " + counts + ".global_status WHERE variable_name = 'Innodb_row_lock_current_waits'",
	}
}

func TestSQLite(t *testing.T) {
	for _, begin := range []string{"deferred", "immediate"} {
		t.Run(begin, func(t *testing.T) {
			run(t, &database{
				DB: open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+
					"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_txlock="+begin),
				dialect:   txlock.SQLite,
				levels:    []sql.IsolationLevel{sql.LevelDefault}, // it has but one: serializable
				immediate: begin == "immediate",
			})
		})
	}
}

// database is the one under test, at one level of isolation.
type database struct {
	*sql.DB
	dialect   txlock.Dialect
	levels    []sql.IsolationLevel
	level     sql.IsolationLevel
	waiting   string // counts the transactions that wait for a lock; "": cannot be asked
	refusing  bool   // MariaDB refuses to write what is newer than the snapshot
	immediate bool   // SQLite's transactions take the write lock as they begin
	accounts  int64
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	return db
}

// run runs all cases at each level.
func run(t *testing.T, d *database) {
	drop := "DROP TABLE IF EXISTS holdfast_txlock"
	if _, err := d.ExecContext(t.Context(), drop); err != nil {
		t.Fatal(err)
	}
	if err := txlock.Create(t.Context(), d.dialect, d, "x"); err == nil || !strings.Contains(err.Error(), "holdfast schema") {
		t.Errorf("without its table: %v", err)
	}
	for _, statement := range []string{
		drop, "DROP TABLE IF EXISTS account",
		txlock.Schema(d.dialect),
		txlock.Schema(d.dialect), // again: this must do no harm
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
	} {
		if _, err := d.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, d.level = range d.levels {
		t.Run(strings.ReplaceAll(d.level.String(), " ", ""), func(t *testing.T) {
			for _, c := range append(lockCases, optimisticCases...) {
				t.Run(c.name, func(t *testing.T) { c.run(t, d) })
			}
		})
	}
}

type testCase struct {
	name string
	run  func(*testing.T, *database)
}

func (d *database) sqlite() bool { return d.dialect == txlock.SQLite }

// snapshots reports whether a transaction sees the data as they were at its first statement.
func (d *database) snapshots() bool { return d.level != sql.LevelReadCommitted }

// refuses reports whether the database itself refuses to write rows that are newer than the
// transaction's snapshot.
func (d *database) refuses() bool {
	return (d.dialect == txlock.Postgres || d.refusing) && d.snapshots() || d.sqlite()
}

// refusesWaiters reports whether a lock fails after a wait because the transaction that had
// it has committed meanwhile.
func (d *database) refusesWaiters() bool {
	return d.dialect == txlock.Postgres && d.snapshots() || d.refusing && d.level == sql.LevelSerializable
}

func (d *database) options() *sql.TxOptions { return &sql.TxOptions{Isolation: d.level} }

func (d *database) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), d.options())
	must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// async runs f in a transaction of its own, rolls it back, and tells the error.
func (d *database) async(ctx context.Context, f func(*sql.Tx) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		tx, err := d.BeginTx(ctx, d.options()) // waits, where transactions are immediate
		if err == nil {
			err = f(tx)
			tx.Rollback() // fails, where the client has dropped the connection
		}
		done <- err
	}()
	return done
}

const workers, increments = 8, 12

// crowd has workers do something at the same time, each so many times.
func crowd(t *testing.T, f func(worker int) error) {
	t.Helper()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for range increments {
				if err := f(worker); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// sql numbers the placeholders where the dialect wants that.
func (d *database) sql(query string) string {
	for n := 1; d.dialect == txlock.Postgres && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", d.dialect.Placeholder(n), 1)
	}
	return query
}

// account makes a row with a balance of 0 and a name to lock, and returns both.
func (d *database) account(t *testing.T) (id int64, name string) {
	t.Helper()
	d.accounts++
	id = d.accounts
	name = fmt.Sprintf("account/%06d", id)
	_, err := d.ExecContext(t.Context(), d.sql("INSERT INTO account (id, balance) VALUES (?, 0)"), id)
	must(t, err, txlock.Create(t.Context(), d.dialect, d, name))
	return id, name
}

func (d *database) balance(ctx context.Context, q optimistic.Querier, id int64) (n int64, err error) {
	err = q.QueryRowContext(ctx, d.sql("SELECT balance FROM account WHERE id = ?"), id).Scan(&n)
	return n, err
}

func (d *database) setBalance(ctx context.Context, q optimistic.Querier, id, n int64) error {
	_, err := q.ExecContext(ctx, d.sql("UPDATE account SET balance = ?, version = version + 1 WHERE id = ?"), n, id)
	return err
}

func (d *database) expectBalance(t *testing.T, id, want int64) {
	t.Helper()
	if n, err := d.balance(t.Context(), d, id); n != want || err != nil {
		t.Errorf("the balance is %d, %v; want %d", n, err, want)
	}
}

// awaitWaiters waits until n transactions wait for a lock.
func (d *database) awaitWaiters(t *testing.T, n int) {
	t.Helper()
	if d.waiting == "" {
		return
	}
	waiting := -1
	for until := time.Now().Add(30 * time.Second); waiting != n; time.Sleep(2 * time.Millisecond) {
		must(t, d.QueryRowContext(t.Context(), d.waiting).Scan(&waiting))
		if time.Now().After(until) {
			t.Fatalf("%d transactions wait for a lock, want %d", waiting, n)
		}
	}
}

// patiently are options of a retry that does not give up.
func (d *database) patiently() *optimistic.Options {
	return &optimistic.Options{Tries: 1000, MaxPause: 20 * time.Millisecond, Tx: d.options()}
}

// within is a context for calls that must not hang.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("hangs"))
	t.Cleanup(cancel)
	return ctx
}
