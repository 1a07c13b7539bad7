//go:build soak

package sqliteconn

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
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
		if _, err := db.Exec("UPDATE holdfast_locks SET taken = taken + ?1, expires = expires + ?1, version = version + ?1, token = token + ?1", by.Microseconds()); err != nil {
			t.Fatal(err)
		}
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
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
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
