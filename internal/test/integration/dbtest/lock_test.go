//go:build soak

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

var lockCases = []testCase{
	{"lock increments", lockIncrements},
	{"lock first", lockFirst},
	{"lock after a read", lockAfterRead},
	{"try", tryLock},
	{"free", lockFree},
	{"shared", lockShared},
	{"deadlock", deadlock},
	{"sorted", sorted},
	{"cancelled", cancelled},
	{"rows", rows},
}

const workers, increments = 8, 12

// lockIncrements has many transactions increment one balance under one lock.
func lockIncrements(t *testing.T, d *database) {
	id, name := d.account(t)
	ctx := within(t)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range increments {
				if err := optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
					if err := d.locks.Lock(ctx, tx, name); err != nil {
						return err
					}
					return d.increment(ctx, tx, id)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	d.expectBalance(t, id, workers*increments)
}

// lockFirst lets a transaction wait for another that writes. It must see the other's writes,
// or be refused.
func lockFirst(t *testing.T, d *database) {
	id, name := d.account(t)
	ctx := within(t)
	first := d.begin(t)
	if err := errors.Join(d.locks.Lock(ctx, first, name), d.setBalance(ctx, first, id, 7)); err != nil {
		t.Fatal(err)
	}
	seen, failed := make(chan int64, 1), make(chan error, 1)
	go func() {
		second, err := d.BeginTx(ctx, d.options()) // waits, where transactions are immediate
		if err != nil {
			failed <- err
			return
		}
		defer second.Rollback()
		if err := d.locks.Lock(ctx, second, name); err != nil {
			failed <- err
			return
		}
		n, err := d.balance(ctx, second, id)
		seen <- n
		failed <- errors.Join(err, second.Commit())
	}()
	d.awaitWaiters(t, 1)
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	err := <-failed
	if d.refusesWaiters() {
		if !errors.Is(err, txlock.ErrConflict) {
			t.Errorf("a lock that was waited for with a snapshot: %v, want ErrConflict", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := <-seen; n != 7 {
		t.Errorf("under the lock the balance is %d, want what the last holder wrote, 7", n)
	}
}

// lockAfterRead reads something else before it locks, while another holder writes.
// The lock must not let it work on old data.
func lockAfterRead(t *testing.T, d *database) {
	if d.immediate {
		return // no other transaction can write after it began
	}
	id, name := d.account(t)
	other, _ := d.account(t)
	ctx := within(t)
	for how, lock := range map[string]func(context.Context, txlock.Tx, ...string) error{
		"Lock": d.locks.Lock, "LockShared": d.locks.LockShared, "TryLock": d.locks.TryLock,
		"LockFree": func(ctx context.Context, tx txlock.Tx, names ...string) error {
			_, err := d.locks.LockFree(ctx, tx, 1, names...)
			return err
		},
	} {
		if err := d.setBalance(ctx, d, id, 0); err != nil {
			t.Fatal(err)
		}
		early := d.begin(t)
		if _, err := d.balance(ctx, early, other); err != nil {
			t.Fatal(err)
		}
		writer := d.begin(t)
		if err := errors.Join(d.locks.Lock(ctx, writer, name), d.setBalance(ctx, writer, id, 7), writer.Commit()); err != nil {
			t.Fatal(err)
		}
		err := lock(ctx, early, name)
		// At MariaDB's SERIALIZABLE all reads are of the newest rows, unless it refuses.
		stale := d.snapshots() && (d.locks != txlock.MySQL || d.level != sql.LevelSerializable || d.refusing)
		if stale != errors.Is(err, txlock.ErrConflict) || !stale && err != nil {
			t.Errorf("%s after a read: %v; want ErrConflict: %v", how, err, stale)
		}
		if err == nil {
			if n, err := d.balance(ctx, early, id); n != 7 || err != nil {
				t.Errorf("under %s the balance is %d, %v; want 7", how, n, err)
			}
		}
		early.Rollback()
	}
}

// tryLock tries a name that is held, one that is not, and one freed by a commit or
// rollback.
func tryLock(t *testing.T, d *database) {
	if d.sqlite() {
		tryLockSQLite(t, d)
		return
	}
	id, name := d.account(t)
	_, second := d.account(t)
	ctx := within(t)
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		holder, other := d.begin(t), d.begin(t)
		if err := d.locks.TryLock(ctx, holder, name); err != nil {
			t.Fatal(err)
		}
		if err := d.locks.TryLock(ctx, holder, name); err != nil {
			t.Errorf("again in the same transaction: %v", err)
		}
		err := d.locks.TryLock(ctx, other, second, name)
		if !errors.Is(err, txlock.ErrHeld) || errors.Is(err, txlock.ErrConflict) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), second) {
			t.Errorf("a name that is held: %v, want ErrHeld", err)
		}
		// That has done no harm to the transaction.
		if err := errors.Join(d.setBalance(ctx, other, id, 3), other.Commit()); err != nil {
			t.Errorf("after ErrHeld: %v", err)
		}
		if err := end(holder); err != nil {
			t.Fatal(err)
		}
		next := d.begin(t)
		if err := d.locks.TryLock(ctx, next, name, second); err != nil {
			t.Errorf("a name that was freed: %v", err)
		}
		if err := next.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// tryLockSQLite: a try waits for the busy timeout, so here it is short.
func tryLockSQLite(t *testing.T, d *database) {
	if d.immediate {
		return // BeginTx would wait, and then nobody holds it
	}
	_, name := d.account(t)
	_, second := d.account(t)
	ctx := within(t)
	conn, err := d.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, busy := range []string{"PRAGMA busy_timeout = 0", "PRAGMA busy_timeout = 20000"} {
		if _, err := conn.ExecContext(ctx, busy); err != nil {
			t.Fatal(err)
		}
		if busy != "PRAGMA busy_timeout = 0" {
			break
		}
		holder := d.begin(t)
		if err := d.locks.TryLock(ctx, holder, name); err != nil {
			t.Fatal(err)
		}
		other, err := conn.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.locks.TryLock(ctx, other, second); !errors.Is(err, txlock.ErrHeld) {
			t.Errorf("while another writes: %v, want ErrHeld", err)
		}
		if names, err := d.locks.LockFree(ctx, other, 1, second); len(names) != 0 || err != nil {
			t.Errorf("while another writes: %v, %v; want none", names, err)
		}
		if err := errors.Join(other.Rollback(), holder.Commit()); err != nil {
			t.Fatal(err)
		}
		if other, err = conn.BeginTx(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.locks.TryLock(ctx, other, second), other.Commit()); err != nil {
			t.Errorf("after the commit: %v", err)
		}
	}
}

// lockFree shares out jobs: every job is done by one worker, and workers do not wait
// for each other.
func lockFree(t *testing.T, d *database) {
	var jobs []string
	for range 10 {
		_, name := d.account(t)
		jobs = append(jobs, name)
	}
	ctx := within(t)
	if d.sqlite() {
		tx := d.begin(t)
		got, err := d.locks.LockFree(ctx, tx, 3, jobs...)
		if !slices.Equal(got, jobs[:3]) || err != nil {
			t.Errorf("%v, %v; want the first 3", got, err)
		}
		return
	}
	var taken []string
	for i, limit := range []int{3, 2, 4, 1, 5} {
		tx := d.begin(t) // all at the same time
		want := jobs[len(taken):min(len(taken)+limit, len(jobs))]
		got, err := d.locks.LockFree(ctx, tx, limit, append(jobs, jobs...)...)
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("worker %d with limit %d: %v, %v; want %v", i, limit, got, err, want)
		}
		taken = append(taken, got...)
	}
	tx := d.begin(t)
	if got, err := d.locks.LockFree(ctx, tx, 0, jobs...); err == nil {
		t.Errorf("limit 0: %v", got)
	}
}

// lockShared: readers have a name at the same time, writers alone.
func lockShared(t *testing.T, d *database) {
	_, name := d.account(t)
	ctx := within(t)
	one := d.begin(t)
	if err := d.locks.LockShared(ctx, one, name); err != nil {
		t.Fatal(err)
	}
	if d.sqlite() {
		return // there shared is exclusive
	}
	two, writer := d.begin(t), d.begin(t)
	if err := d.locks.LockShared(ctx, two, name); err != nil {
		t.Fatal(err)
	}
	if err := d.locks.TryLock(ctx, writer, name); !errors.Is(err, txlock.ErrHeld) {
		t.Errorf("a writer beside readers: %v", err)
	}
	if err := errors.Join(one.Commit(), two.Commit(), writer.Rollback()); err != nil {
		t.Fatal(err)
	}
	writer = d.begin(t)
	if err := d.locks.TryLock(ctx, writer, name); err != nil {
		t.Errorf("after the readers: %v", err)
	}
	read := make(chan error, 1)
	go func() {
		reader, err := d.BeginTx(ctx, d.options())
		if err == nil {
			err = errors.Join(d.locks.LockShared(ctx, reader, name), reader.Rollback())
		}
		read <- err
	}()
	d.awaitWaiters(t, 1)
	if err := writer.Commit(); err != nil {
		t.Fatal(err)
	}
	err := <-read
	if refused := d.refusesWaiters(); refused != errors.Is(err, txlock.ErrConflict) || !refused && err != nil {
		t.Errorf("a reader after a writer: %v; want ErrConflict: %v", err, refused)
	}
}

// deadlock locks in two calls, against the order: the database ends one transaction,
// and the other goes on.
func deadlock(t *testing.T, d *database) {
	if d.sqlite() {
		return // one lock
	}
	_, a := d.account(t)
	_, b := d.account(t)
	ctx := within(t)
	one, two := d.begin(t), d.begin(t)
	if err := errors.Join(d.locks.Lock(ctx, one, a), d.locks.Lock(ctx, two, b)); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	go func() {
		err := d.locks.Lock(ctx, one, b)
		results <- errors.Join(err, one.Rollback())
	}()
	d.awaitWaiters(t, 1)
	err := d.locks.Lock(ctx, two, a)
	results <- errors.Join(err, two.Rollback())
	first, second := <-results, <-results
	if errors.Is(first, txlock.ErrConflict) == errors.Is(second, txlock.ErrConflict) || first != nil && second != nil {
		t.Errorf("the two say %v and %v; want ErrConflict from one", first, second)
	}
}

// sorted locks several names in one call, each time in another order: no deadlock.
func sorted(t *testing.T, d *database) {
	var names []string
	for range 4 {
		_, name := d.account(t)
		names = append(names, name)
	}
	ctx := within(t)
	var conflicts atomic.Int64
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			for range 25 {
				if err := optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
					mine := slices.Clone(names)
					rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
					err := d.locks.Lock(ctx, tx, mine[:3]...)
					if errors.Is(err, txlock.ErrConflict) {
						conflicts.Add(1)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	// Where waiters are refused a conflict is no deadlock.
	if n := conflicts.Load(); n > 0 && !d.refusesWaiters() {
		t.Errorf("%d conflicts among transactions that lock in order", n)
	}
}

// cancelled ends the context of a transaction that waits: it returns, and does not take the
// lock later.
func cancelled(t *testing.T, d *database) {
	if d.sqlite() {
		return // it notices after the busy timeout only
	}
	_, name := d.account(t)
	ctx := within(t)
	holder := d.begin(t)
	if err := d.locks.Lock(ctx, holder, name); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		waiter, err := d.BeginTx(ctx, d.options())
		if err == nil {
			err = d.locks.Lock(short, waiter, name)
			waiter.Rollback() // fails, where the client has dropped the connection
		}
		gone <- err
	}()
	d.awaitWaiters(t, 1)
	cancel()
	select {
	case err := <-gone:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want the context's", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a cancelled lock does not return")
	}
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	next := d.begin(t)
	if err := d.locks.Lock(ctx, next, name); err != nil {
		t.Errorf("after the cancelled one: %v", err)
	}
}

// rows: names without a row, created by many at once, removed.
func rows(t *testing.T, d *database) {
	ctx := within(t)
	name := fmt.Sprintf("rows/%v", d.level)
	if d.immediate {
		name += "/immediate"
	}
	missing := d.begin(t)
	if err := d.locks.Lock(ctx, missing, name); !errors.Is(err, txlock.ErrUnknown) {
		t.Errorf("Lock of a name without a row: %v, want ErrUnknown", err)
	}
	if err := missing.Rollback(); err != nil {
		t.Fatal(err)
	}
	missing = d.begin(t)
	want := txlock.ErrUnknown
	if d.locks == txlock.MySQL {
		want = txlock.ErrHeld
	}
	if err := d.locks.TryLock(ctx, missing, name); !errors.Is(err, want) {
		t.Errorf("TryLock of a name without a row: %v, want %v", err, want)
	}
	if err := missing.Rollback(); err != nil {
		t.Fatal(err)
	}

	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			if err := d.locks.Create(ctx, d, name+"/b", name, name+"/a"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()

	if err := d.locks.Lock(ctx, d.DB, name); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
		t.Errorf("Lock on the pool: %v", err)
	}
	byHand(t, d, name)
	remover := d.begin(t)
	if err := errors.Join(d.locks.Lock(ctx, remover, name), d.locks.Remove(ctx, remover, name)); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		waiter, err := d.BeginTx(ctx, d.options())
		if err == nil {
			err = errors.Join(d.locks.Lock(ctx, waiter, name), waiter.Rollback())
		}
		waited <- err
	}()
	d.awaitWaiters(t, 1)
	if err := remover.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, txlock.ErrUnknown) && !errors.Is(err, txlock.ErrConflict) {
		t.Errorf("Lock of a name that was removed meanwhile: %v", err)
	}
}

// byHand locks on a connection, without a transaction and in one that was begun by hand.
func byHand(t *testing.T, d *database, name string) {
	ctx := within(t)
	conn, err := d.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string) {
		t.Helper()
		for how, err := range map[string]error{"Lock": d.locks.Lock(ctx, conn, name), "Remove": d.locks.Remove(ctx, conn, name)} {
			if err == nil || !strings.Contains(err.Error(), "*sql.Conn has none") {
				t.Errorf("%s %s: %v", how, when, err)
			}
		}
	}
	refused("without a transaction")
	run("BEGIN")
	for range 2 {
		if err := d.locks.Lock(ctx, conn, name); err != nil {
			t.Errorf("in a transaction begun by hand: %v", err)
		}
	}
	run("ROLLBACK")
	refused("after the transaction")
}
