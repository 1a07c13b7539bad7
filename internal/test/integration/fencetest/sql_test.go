//go:build soak

package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the client of PostgreSQL
	_ "modernc.org/sqlite"             // the client of SQLite

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestPostgres runs the cases on a PostgreSQL server.
func TestPostgres(t *testing.T) {
	server := testserver.StartPostgres(t, "deadlock_timeout=50ms")
	run(t, openServer(t, "pgx", server.URL("postgres")), fence.Postgres)
}

// TestMariaDB runs the cases on a MariaDB server.
func TestMariaDB(t *testing.T) { onMySQL(t, testserver.StartMariaDB(t)) }

// TestMySQL does the same on MySQL 8.
func TestMySQL(t *testing.T) { onMySQL(t, testserver.StartMySQL(t)) }

func onMySQL(t *testing.T, server *testserver.MySQL) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", server.Addr, "root", "test"
	config.Logger = &mysql.NopLogger{}
	run(t, openServer(t, "mysql", config.FormatDSN()), fence.MySQL)
}

// TestSQLite runs the cases on a file that several connections use: with a write-ahead log, so that readers and a
// writer work side by side, and a busy timeout, so that writers wait.
func TestSQLite(t *testing.T) {
	run(t, openServer(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "fence.db")+
		"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"), fence.SQLite)
}

func openServer(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	testserver.Must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db
}

// run runs every case on a scratch database of the dialect, at each level of isolation at which the dialect's
// guard is right.
func run(t *testing.T, db *sql.DB, d fence.Dialect) {
	levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	if d == fence.SQLite {
		levels = []sql.IsolationLevel{sql.LevelDefault} // it has but one: serializable
	}
	for _, level := range levels {
		t.Run(strings.ReplaceAll(level.String(), " ", ""), func(t *testing.T) {
			b := &bench{db: db, dialect: d, level: level}
			b.setUp(t)
			for _, c := range []struct {
				name string
				run  func(*testing.T, *bench)
			}{
				{"admit as a gate does", admitAsGate},
				{"names apart", namesApart},
				{"no transaction", noTransaction},
				{"two resources", twoResources},
				{"concurrent holders", concurrentHolders},
			} {
				t.Run(c.name, func(t *testing.T) { c.run(t, b) })
			}
		})
	}
}

// bench is the database under test at one level of isolation.
type bench struct {
	db      *sql.DB
	dialect fence.Dialect
	level   sql.IsolationLevel
	ids     int64 // of accounts
}

func (b *bench) setUp(t *testing.T) {
	t.Helper()
	for _, ddl := range []string{
		"DROP TABLE IF EXISTS holdfast_fence",
		fence.Schema(b.dialect),
		fence.Schema(b.dialect), // again: this must do no harm
		"DROP TABLE IF EXISTS fencetest_account",
		"CREATE TABLE fencetest_account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
	} {
		if _, err := b.db.ExecContext(t.Context(), ddl); err != nil {
			t.Fatalf("%s: %v", ddl, err)
		}
	}
}

// sql numbers the placeholders where the dialect wants that.
func (b *bench) sql(query string) string {
	for n := 1; b.dialect == fence.Postgres && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", b.dialect.Placeholder(n), 1)
	}
	return query
}

// tx runs work in a transaction: committed if it returns nil, else rolled back.
func (b *bench) tx(ctx context.Context, work func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: b.level})
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// account makes a row with a balance of 0 and returns its id and the resource
// name that stands for it.
func (b *bench) account(t *testing.T) (id int64, resource string) {
	t.Helper()
	b.ids++
	id = b.ids
	if _, err := b.db.ExecContext(t.Context(), b.sql("INSERT INTO fencetest_account (id, balance) VALUES (?, 0)"), id); err != nil {
		t.Fatal(err)
	}
	return id, fmt.Sprintf("fencetest/account/%d", id)
}

func (b *bench) balance(ctx context.Context, tx fence.Tx, id int64) (n int64, err error) {
	err = tx.QueryRowContext(ctx, b.sql("SELECT balance FROM fencetest_account WHERE id = ?"), id).Scan(&n)
	return n, err
}

func (b *bench) setBalance(ctx context.Context, tx fence.Tx, id, n int64) error {
	_, err := tx.ExecContext(ctx, b.sql("UPDATE fencetest_account SET balance = ? WHERE id = ?"), n, id)
	return err
}

// admitAsGate offers tokens at random to the table of marks and to a Gate,
// which must agree on each one and on the marks.
func admitAsGate(t *testing.T, b *bench) {
	const resource = "fencetest/gate"
	var gate fence.Gate
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 200 {
		// A window that moves up, so that tokens fall on either side of marks
		// of both kinds all the way.
		token := driver.Token(i/8 + 1 + random.IntN(6))
		mode := driver.Mode(random.IntN(2))
		want := gate.Admit(token, mode)
		got := b.tx(t.Context(), func(tx *sql.Tx) error { return fence.AdmitTx(t.Context(), b.dialect, tx, resource, token, mode) })
		wantStale, _ := errors.AsType[*fence.StaleError](want)
		gotStale, stale := errors.AsType[*fence.StaleError](got)
		if (wantStale != nil) != stale || (want == nil) != (got == nil) || stale && gotStale.Mark != wantStale.Mark {
			t.Fatalf("step %d: %v token %d: the gate says %v, the database %v", i, mode, token, want, got)
		}
		if stale {
			refused++
		}
		key := any(resource)
		if b.dialect == fence.MySQL {
			key = []byte(resource)
		}
		var exclusive, shared driver.Token
		row := b.db.QueryRowContext(t.Context(), b.sql("SELECT exclusive_mark, shared_mark FROM holdfast_fence WHERE resource = ?"), key)
		testserver.Must(t, row.Scan(&exclusive, &shared))
		if wantExclusive, wantShared := gate.Marks(); exclusive != wantExclusive || shared != wantShared {
			t.Fatalf("step %d: after %v token %d the marks are %d and %d, want %d and %d",
				i, mode, token, exclusive, shared, wantExclusive, wantShared)
		}
	}
	if refused < 50 || refused > 150 {
		t.Fatalf("%d of 200 refused: the tokens do not try the guard", refused)
	}
}

// namesApart admits a high token of one name and low ones of names that a
// careless comparison takes for the same.
func namesApart(t *testing.T, b *bench) {
	long := "fencetest/" + strings.Repeat("x", driver.MaxName-len("fencetest/")-1)
	names := []string{
		"fencetest/name", "fencetest/Name", "fencetest/name ", "fencetest/name  ", "fencetest/nam_", "fencetest/nam%",
		"fencetest/n\u00e4me", "fencetest/na\u0308me", "fencetest/\U0001F512", "fencetest/\U0001F513", "fencetest/'", `fencetest/\`,
		long + "1", long + "2",
	}
	for i, name := range names {
		token := driver.Token(len(names) - i)
		err := b.tx(t.Context(), func(tx *sql.Tx) error {
			return fence.AdmitTx(t.Context(), b.dialect, tx, name, token, driver.Exclusive)
		})
		if err != nil {
			t.Errorf("%q is not kept apart from the names before it: %v", name, err)
		}
	}
	err := b.tx(t.Context(), func(tx *sql.Tx) error {
		return fence.AdmitTx(t.Context(), b.dialect, tx, names[0], 1, driver.Exclusive)
	})
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Resource != names[0] || stale.Mark != driver.Token(len(names)) {
		t.Errorf("a stale token of %q: %v", names[0], err)
	}
}

// noTransaction offers the pool itself, and a connection before, in and after a transaction that was begun by hand.
func noTransaction(t *testing.T, b *bench) {
	_, resource := b.account(t)
	conn, err := b.db.Conn(t.Context())
	testserver.Must(t, err)
	defer conn.Close()
	admit := func(tx fence.Tx, what string, refused bool) {
		t.Helper()
		err := fence.AdmitTx(t.Context(), b.dialect, tx, resource, 5, driver.Exclusive)
		if refused != (err != nil && strings.Contains(err.Error(), "transaction")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	run := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	admit(struct{ fence.Tx }{b.db}, "a wrapped *sql.DB", true)
	admit(conn, "a connection without a transaction", true)
	run("BEGIN")
	admit(conn, "a transaction begun by hand", false)
	run("ROLLBACK")
	admit(conn, "a connection after its transaction", true)
	// Nothing of all that has left a mark.
	err = b.tx(t.Context(), func(tx *sql.Tx) error {
		return fence.AdmitTx(t.Context(), b.dialect, tx, resource, 4, driver.Exclusive)
	})
	if err != nil {
		t.Errorf("a refused or rolled back token left a mark: %v", err)
	}
}

// holder increments an account's balance by a read and a write, each in a
// transaction of its own, as a program does that computes in between.
type holder struct {
	*bench
	id       int64
	resource string
	token    driver.Token
	base     int64 // what it read
}

func (h *holder) read(ctx context.Context) error {
	return h.tx(ctx, func(tx *sql.Tx) (err error) {
		if err := fence.AdmitTx(ctx, h.dialect, tx, h.resource, h.token, driver.Exclusive); err != nil {
			return err
		}
		h.base, err = h.balance(ctx, tx, h.id)
		return err
	})
}

func (h *holder) write(ctx context.Context) error {
	return h.tx(ctx, func(tx *sql.Tx) error {
		if err := fence.AdmitTx(ctx, h.dialect, tx, h.resource, h.token, driver.Exclusive); err != nil {
			return err
		}
		return h.setBalance(ctx, tx, h.id, h.base+1)
	})
}

// twoResources moves a unit from one account to another under two locks, with
// both guards first, and is between the two when an older holder of the second
// account commits. Whatever the level, it sees what that one wrote.
func twoResources(t *testing.T, b *bench) {
	ctx := t.Context()
	from, fromResource := b.account(t)
	to, toResource := b.account(t)
	older, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: b.level})
	testserver.Must(t, err)
	if err := errors.Join(
		fence.AdmitTx(ctx, b.dialect, older, toResource, 1, driver.Exclusive),
		b.setBalance(ctx, older, to, 10),
	); err != nil {
		t.Fatal(err)
	}
	between, done := make(chan struct{}), make(chan error, 1)
	if b.dialect == fence.SQLite {
		close(between) // its first guard already waits for the older transaction
	}
	go func() {
		first := b.dialect != fence.SQLite
		done <- again(ctx, func(ctx context.Context) error {
			return b.tx(ctx, func(tx *sql.Tx) error {
				if err := fence.AdmitTx(ctx, b.dialect, tx, fromResource, 2, driver.Exclusive); err != nil {
					return err
				}
				if first {
					first = false
					close(between)
				}
				if err := fence.AdmitTx(ctx, b.dialect, tx, toResource, 2, driver.Exclusive); err != nil {
					return err
				}
				out, err := b.balance(ctx, tx, from)
				if err != nil {
					return err
				}
				in, err := b.balance(ctx, tx, to)
				if err != nil {
					return err
				}
				return errors.Join(b.setBalance(ctx, tx, from, out-1), b.setBalance(ctx, tx, to, in+1))
			})
		})
	}()
	select {
	case <-between:
	case err := <-done:
		t.Fatalf("the younger holder ended before its second guard: %v", err)
	}
	testserver.Must(t, older.Commit())
	testserver.Must(t, <-done)
	out, err1 := b.balance(ctx, b.db, from)
	in, err2 := b.balance(ctx, b.db, to)
	if out != -1 || in != 11 || err1 != nil || err2 != nil {
		t.Errorf("balances %d and %d (%v, %v), want -1 and 11", out, in, err1, err2)
	}
}

// concurrentHolders lets many holders increment one balance, all at once, as if
// each one's lock had ended as soon as it had it. However their transactions
// fall, every acknowledged update must be there.
func concurrentHolders(t *testing.T, b *bench) {
	const rounds, workers, holds = 8, 4, 8
	total := int64(0)
	for range rounds {
		id, resource := b.account(t)
		var tokens, acknowledged atomic.Int64
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for range holds {
					h := &holder{bench: b, id: id, resource: resource, token: driver.Token(tokens.Add(1))}
					err := again(t.Context(), h.read)
					if err == nil {
						err = again(t.Context(), h.write)
					}
					if err == nil {
						acknowledged.Add(1)
					} else if !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		n, err := b.balance(t.Context(), b.db, id)
		if err != nil || n != acknowledged.Load() || n == 0 {
			t.Fatalf("%d updates acknowledged, %d there, %v", acknowledged.Load(), n, err)
		}
		total += n
	}
	t.Logf("of %d holders %d could finish", rounds*workers*holds, total)
}

// again repeats a transaction that the database gave up because of another.
func again(ctx context.Context, transaction func(context.Context) error) error {
	var err error
	for range 200 {
		if err = transaction(ctx); err == nil || errors.Is(err, fence.ErrStale) || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("given up: %w", err)
}
