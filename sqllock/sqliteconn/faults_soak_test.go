//go:build soak

package sqliteconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestClockBack(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	sqltest.ClockBack(t, d, func(by time.Duration) {
		exec(t, db, "UPDATE holdfast_locks SET taken = taken + ?1, expires = expires + ?1, version = version + ?1, token = token + ?1", by.Microseconds())
	})
}

func TestTwin(t *testing.T) {
	d, err := New(t.Context(), openDB(t, filepath.Join(t.TempDir(), "locks.db")), &sqllock.Options{Poll: sqltest.TwinPoll})
	must(t, err)
	defer d.Close()
	sqltest.Twin(t, d)
}

func TestDeadCrowd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	sqltest.DeadCrowd(t, func() driver.Driver { return dial(t, file, func(db *sql.DB) { db.SetMaxOpenConns(2) }) })
}

func TestStartTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	sqltest.StartTogether(t, func() (driver.Driver, error) { return openURL(t.Context(), "sqlite://"+file) })
}

func TestOneConnection(t *testing.T) {
	sqltest.ManyAtOnce(t, dial(t, filepath.Join(t.TempDir(), "locks.db"), func(db *sql.DB) { db.SetMaxOpenConns(1) }))
}

func TestManyWaiters(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	d, err := New(t.Context(), db, &sqllock.Options{Poll: time.Minute})
	must(t, err)
	sqltest.OneKept(t, db, d, nil)
}

// TestProcesses: several processes add to a number that only the lock protects, until
// it is high enough. None of them is kept out by the others (P8), though SQLite itself
// has no queue.
func TestProcesses(t *testing.T) {
	const processes, total = 4, 200
	dir := t.TempDir()
	begin := filepath.Join(dir, "begin")
	var children []*testserver.Child
	for range processes {
		c := testserver.StartChild(t, "count", filepath.Join(dir, "locks.db"), filepath.Join(dir, "number"), fmt.Sprint(total), begin)
		c.Expect("ready")
		children = append(children, c)
	}
	must(t, os.WriteFile(begin, nil, 0o666))
	var sum, squares float64
	var counts []float64
	for _, c := range children {
		n, err := strconv.ParseFloat(c.Expect(""), 64)
		must(t, err)
		counts, sum, squares = append(counts, n), sum+n, squares+n*n
		c.End()
	}
	if text, err := os.ReadFile(filepath.Join(dir, "number")); string(text) != fmt.Sprint(total) || sum != total {
		t.Errorf("P1: %v updates under a lock made %q, %v", counts, text, err)
	}
	if jain := sum * sum / (processes * squares); jain < 0.9 {
		t.Errorf("P8: the processes had the lock %v times: Jain's index is %.2f", counts, jain)
	}
}

// TestDeadAndStopped: the name of a process that was killed, or stands still, opens
// with its TTL, and a process that goes on then knows that it has lost.
func TestDeadAndStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	d, err := openURL(t.Context(), "sqlite://"+file)
	must(t, err)
	locks, err := holdfast.New(d, nil)
	must(t, err)
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, end := range []string{"kill", "stop"} {
		child := testserver.StartChild(t, "hold", file)
		child.Expect("held")
		if end == "kill" {
			child.Kill()
		} else {
			child.Signal(syscall.SIGSTOP)
		}
		lease, err := locks.Mutex("n", nil).Acquire(ctx)
		if err != nil {
			t.Fatalf("P5: Acquire behind a process after %s: %v", end, err)
		}
		if end == "stop" {
			child.Signal(syscall.SIGCONT)
			child.Expect("lost")
			child.End()
		}
		must(t, lease.Release())
	}
}

// TestMain plays the other processes too.
func TestMain(m *testing.M) {
	testserver.Play(parts)
	os.Exit(m.Run())
}

// openDB returns a pool of its own.
func openDB(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", DSN(file))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestBusy: a busy client keeps its leases, though there is one writer at a time.
func TestBusy(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	busytest.Run(t, func(time.Duration) {}, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), url)
		must(t, err)
		return locks
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others.
func TestFullPool(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	db.SetMaxOpenConns(4)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	sqltest.FullPool(t, db, d, nil)
}

// TestDeadlines: an ended context is told as such while another process writes.
func TestDeadlines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	d, err := New(t.Context(), openDB(t, file), nil)
	must(t, err)
	defer d.Close()
	held, err := d.Try(t.Context(), driver.Request{Name: "held", Owner: "holder", TTL: time.Minute})
	must(t, err)
	other, err := openDB(t, file).Conn(t.Context())
	must(t, err)
	defer other.Close()
	exec(t, other, "BEGIN IMMEDIATE")
	for name, call := range map[string]func(context.Context) error{
		"Try": func(ctx context.Context) error {
			_, err := d.Try(ctx, driver.Request{Name: "n", Owner: "owner", TTL: time.Minute})
			return err
		},
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, []driver.Grant{held})[0].Err },
		"Release": func(ctx context.Context) error { return d.Release(ctx, []driver.Grant{held})[0] },
		"New": func(ctx context.Context) error {
			_, err := New(ctx, openDB(t, file), &sqllock.Options{Prefix: "new"})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("P11: %s after its deadline: %v", name, err)
		}
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("P11: %s after it was cancelled: %v", name, err)
		}
	}
	exec(t, other, "ROLLBACK")
}

// TestStoppedBeforeLock: a client stands still before it locks the database. Its step judges by the time at which it
// has the database to itself (P1), so the token of a hand-over, which is that time or later, is not from before.
func TestStoppedBeforeLock(t *testing.T) {
	t.Parallel()
	inner, err := sqlite.NewConnector(DSN(filepath.Join(t.TempDir(), "locks.db")))
	must(t, err)
	var locked atomic.Int64 // microseconds since 1970, when it was about to lock the database
	db := (&sqltest.Hook{Connector: inner, Before: func(_ any, text string) error {
		if text == "BEGIN IMMEDIATE" {
			time.Sleep(5 * time.Millisecond)
			locked.Store(time.Now().UnixMicro())
		}
		return nil
	}}).Open(t)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}
	held, err := d.Try(t.Context(), request("holder"))
	must(t, err)
	q := d.(driver.Queuer)
	if _, err := q.Enqueue(t.Context(), request("next")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	locked.Store(0)
	must(t, d.Release(t.Context(), []driver.Grant{held})[0])
	at := locked.Load()
	g, err := q.Wait(t.Context(), request("next"))
	if err != nil || at == 0 || int64(g.Token) < at {
		t.Errorf("P1: handed over with token %d, %v; the database was locked at %d", g.Token, err, at)
	}
}

// TestCleanMany: the rows of thousands of names that nobody uses are removed, and those
// that are held, closed or were used not long ago stay.
func TestCleanMany(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	for _, name := range []string{"held", "closed", "used"} {
		r := driver.Request{Name: name, Owner: "owner of " + name, TTL: 24 * time.Hour}
		if name == "closed" {
			r.MinHold = 24 * time.Hour
		}
		g, err := d.Try(t.Context(), r)
		must(t, err)
		if name == "held" {
			continue
		}
		must(t, d.Release(t.Context(), []driver.Grant{g})[0])
	}
	old := time.Now().Add(-2 * time.Hour).UnixMicro()
	exec(t, db, "UPDATE holdfast_locks SET version = ? WHERE name <> 'used'", old)
	tx, err := db.Begin()
	must(t, err)
	for i := range 2000 {
		owner, ended := "", int64(0)
		if i%2 == 0 { // nobody has used the name since it expired
			owner, ended = "gone", old
		}
		exec(t, tx, "INSERT INTO holdfast_locks VALUES (?, ?, ?, ?, '', 0, 0, '', 0, ?, '', 0)", fmt.Sprintf("order/%06d", i), old, old, owner, ended)
	}
	must(t, tx.Commit())
	must(t, d.(interface{ Clean(context.Context) error }).Clean(t.Context()))
	var names string
	if err := db.QueryRow("SELECT group_concat(name, ' ') FROM (SELECT name FROM holdfast_locks ORDER BY name)").Scan(&names); err != nil || names != "closed held used" {
		t.Errorf("P9: after cleaning there are the rows %.200q, %v", names, err)
	}
}

// TestReaderInTheWay: without a write-ahead log a reader, such as a backup, keeps writers
// from their commit. They wait for its end; who gives up first has certainly done nothing.
func TestReaderInTheWay(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(1)&_pragma=journal_mode(DELETE)"
	open := func() *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	d, err := New(t.Context(), open(), nil)
	must(t, err)
	defer d.Close()
	reader := open()
	read := func() *sql.Tx {
		t.Helper()
		for {
			tx, err := reader.Begin()
			must(t, err)
			var n int
			if err = tx.QueryRow("SELECT count(*) FROM holdfast_locks").Scan(&n); err == nil {
				return tx
			}
			tx.Rollback()
			if failure(err) != sqllock.Conflict { // a writer is at it
				t.Fatal(err)
			}
		}
	}
	request := func(owner string) driver.Request {
		return driver.Request{Name: "n", Owner: owner, TTL: time.Minute}
	}

	tx := read()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Try(ctx, request("hasty")); err == nil || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: Try while somebody reads all the time: %v", err)
	}
	done := make(chan struct{})
	var g driver.Grant
	go func() {
		defer close(done)
		if g, err = d.Try(t.Context(), request("patient")); err != nil {
			t.Errorf("Try while somebody reads for a moment: %v", err)
		}
	}()
	select {
	case <-done:
		t.Error("the reader is not in the way: nothing is tested")
	case <-time.After(50 * time.Millisecond):
	}
	must(t, tx.Rollback())
	<-done
	tx = read()
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context(), []driver.Grant{g})[0] }()
	time.Sleep(20 * time.Millisecond) // most likely the release is under way
	must(t, tx.Rollback())
	if err := <-released; err != nil {
		t.Errorf("P4: Release while somebody reads for a moment: %v", err)
	}
}
