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
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

func TestClockBack(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	d, err := New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sqltest.ClockBack(t, d, func(by time.Duration) {
		if _, err := db.Exec("UPDATE holdfast_locks SET taken = taken + ?1, expires = expires + ?1, version = version + ?1, token = token + ?1", by.Microseconds()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTwin(t *testing.T) {
	d, err := New(t.Context(), openDB(t, filepath.Join(t.TempDir(), "locks.db")), &sqllock.Options{Poll: sqltest.TwinPoll})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sqltest.Twin(t, d)
}

// crowd is how many clients want one name, each with connections of its own.
var crowd = testserver.Long(16, 64)

func TestCrowd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	open := func() driver.Driver {
		return dial(t, file, func(db *sql.DB) { db.SetMaxOpenConns(2) })
	}
	t.Run("live", func(t *testing.T) { sqltest.Crowd(t, crowd, 6, open) })
	t.Run("dead", func(t *testing.T) { sqltest.DeadCrowd(t, open) })
}

func TestBlocks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	sqltest.Blocks(t, dial(t, file, nil), dial(t, file, nil))
}

func TestStartTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	sqltest.StartTogether(t, func() (driver.Driver, error) { return openURL(t.Context(), "sqlite://"+file) })
}

func TestBatches(t *testing.T) {
	d, err := New(t.Context(), openDB(t, filepath.Join(t.TempDir(), "locks.db")), &sqllock.Options{Poll: sqltest.TwinPoll})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sqltest.Batches(t, d)
}

func TestContended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	sqltest.Contended(t, dial(t, file, nil), dial(t, file, nil))
}

func TestOneConnection(t *testing.T) {
	sqltest.OneConnection(t, dial(t, filepath.Join(t.TempDir(), "locks.db"), func(db *sql.DB) { db.SetMaxOpenConns(1) }))
}

// TestSharedPool: the poller's connection is given back when another takes the last one of
// the pool; otherwise nobody could release the name for which it polls.
func TestSharedPool(t *testing.T) {
	var pool *sql.DB
	d := dial(t, filepath.Join(t.TempDir(), "locks.db"), func(db *sql.DB) {
		pool = db
		db.SetMaxOpenConns(3) // one is reserved for renewals and releases
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	g, err := d.Try(ctx, driver.Request{Name: "n", Owner: "holder", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	next, q := driver.Request{Name: "n", Owner: "waiter", TTL: time.Minute}, d.(driver.Queuer)
	if _, err := q.Enqueue(ctx, next); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	granted := make(chan error, 1)
	go func() {
		g, err := q.Wait(ctx, next)
		granted <- errors.Join(err, d.Release(ctx, []driver.Grant{g})[0])
	}()
	for pool.Stats().InUse < 2 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for range 2 { // the last one, and the one of the poller
		conn, err := pool.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
		t.Errorf("P7: beside a poller and another user of the pool: %v", err)
	}
	if err := <-granted; err != nil {
		t.Errorf("P7: the waiter: %v", err)
	}
	sqltest.OneConnection(t, d)
}

func TestPolling(t *testing.T) {
	inner, err := sqlite.NewConnector(DSN(filepath.Join(t.TempDir(), "locks.db")))
	if err != nil {
		t.Fatal(err)
	}
	b := sqltest.Polling{Connector: connector{inner}, Open: New}
	b.Test(t)
}

// TestDiskFull: a request that does not fit fails, and what was held before is still
// held, and can be renewed and released.
func TestDiskFull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", DSN(file)+"&_pragma=max_page_count(12)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d, err := New(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var grants []driver.Grant
	for i := range 1000 {
		r := driver.Request{Name: fmt.Sprintf("%0100d", i), Owner: fmt.Sprint(i), TTL: time.Minute, Note: strings.Repeat("x", 200)}
		g, err := d.Try(t.Context(), r)
		if err != nil {
			if errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "full") {
				t.Errorf("Try on a full disk returned %v", err)
			}
			break
		}
		grants = append(grants, g)
	}
	if len(grants) == 0 || len(grants) == 1000 {
		t.Fatalf("%d holds fit", len(grants))
	}
	for _, r := range d.Renew(t.Context(), grants) {
		if r.Err != nil {
			t.Fatalf("Renew on a full disk: %v", r.Err)
		}
	}
	for _, err := range d.Release(t.Context(), grants) {
		if err != nil {
			t.Fatalf("Release on a full disk: %v", err)
		}
	}
}

// TestProcesses: several processes add to a number that only the lock protects, until
// it is high enough. None of them is kept out by the others (P8), though SQLite itself
// has no queue.
func TestProcesses(t *testing.T) {
	const processes, total = 4, 200
	dir := t.TempDir()
	begin := filepath.Join(dir, "begin")
	var children []*sqltest.Child
	for range processes {
		c := sqltest.StartChild(t, "count", filepath.Join(dir, "locks.db"), filepath.Join(dir, "number"), fmt.Sprint(total), begin)
		c.Expect("ready")
		children = append(children, c)
	}
	if err := os.WriteFile(begin, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	var counts []float64
	for _, c := range children {
		n, err := strconv.ParseFloat(c.Line(), 64)
		if err != nil {
			t.Fatal(err)
		}
		counts, sum, squares = append(counts, n), sum+n, squares+n*n
		c.Wait()
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
	if err != nil {
		t.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, end := range []string{"kill", "stop"} {
		child := sqltest.StartChild(t, "hold", file)
		child.Expect("held")
		if end == "kill" {
			child.Kill()
		} else {
			child.Stop()
		}
		lease, err := locks.Mutex("n", nil).Acquire(ctx)
		if err != nil {
			t.Fatalf("P5: Acquire behind a process after %s: %v", end, err)
		}
		if end == "stop" {
			child.Continue()
			child.Expect("lost")
			child.Wait()
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	}
}

// TestMain plays the other processes too.
func TestMain(m *testing.M) {
	sqltest.Play(parts)
	os.Exit(m.Run())
}

// openDB returns a pool of its own.
func openDB(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := Pool(DSN(file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
