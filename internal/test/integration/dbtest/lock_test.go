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
	{"cancelled", cancelled},
	{"rows", rows},
}

// lockIncrements has many transactions increment one balance, each under three of four locks in any order. Any two
// share a lock, and none of them is ended for a deadlock.
func lockIncrements(t *testing.T, d *database) {
	id, name := d.account(t)
	names := []string{name}
	for range 3 {
		_, name := d.account(t)
		names = append(names, name)
	}
	ctx := within(t)
	var conflicts atomic.Int64
	crowd(t, func(int) error {
		return optimistic.Retry(ctx, d.DB, d.patiently(), func(tx *sql.Tx) error {
			mine := slices.Clone(names)
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			if err := txlock.Lock(ctx, d.dialect, tx, mine[:3]...); err != nil {
				if errors.Is(err, txlock.ErrConflict) {
					conflicts.Add(1)
				}
				return err
			}
			n, err := d.balance(ctx, tx, id)
			return errors.Join(err, d.setBalance(ctx, tx, id, n+1))
		})
	})
	d.expectBalance(t, id, workers*increments)
	// Where waiters are refused a conflict is no deadlock.
	if n := conflicts.Load(); n > 0 && !d.refusesWaiters() {
		t.Errorf("%d conflicts among transactions that lock in order", n)
	}
}

// lockFirst lets a transaction wait for another that writes. It must see the other's writes,
// or be refused.
func lockFirst(t *testing.T, d *database) {
	id, name := d.account(t)
	ctx := within(t)
	first := d.begin(t)
	must(t, txlock.Lock(ctx, d.dialect, first, name), d.setBalance(ctx, first, id, 7))
	seen := int64(0)
	second := d.async(ctx, func(tx *sql.Tx) error {
		err := txlock.Lock(ctx, d.dialect, tx, name)
		if err == nil {
			seen, err = d.balance(ctx, tx, id)
		}
		return err
	})
	d.awaitWaiters(t, 1)
	must(t, first.Commit())
	switch err := <-second; {
	case d.refusesWaiters():
		if !errors.Is(err, txlock.ErrConflict) {
			t.Errorf("a lock that was waited for with a snapshot: %v, want ErrConflict", err)
		}
	case err != nil || seen != 7:
		t.Errorf("under the lock the balance is %d, %v; want what the last holder wrote, 7", seen, err)
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
	for how, lock := range map[string]func(context.Context, txlock.Dialect, txlock.Tx, ...string) error{
		"Lock": txlock.Lock, "LockShared": txlock.LockShared, "TryLock": txlock.TryLock,
		"LockFree": func(ctx context.Context, d txlock.Dialect, tx txlock.Tx, names ...string) error {
			_, err := txlock.LockFree(ctx, d, tx, 1, names...)
			return err
		},
	} {
		must(t, d.setBalance(ctx, d, id, 0))
		early := d.begin(t)
		_, err := d.balance(ctx, early, other)
		must(t, err)
		writer := d.begin(t)
		must(t, txlock.Lock(ctx, d.dialect, writer, name), d.setBalance(ctx, writer, id, 7), writer.Commit())
		err = lock(ctx, d.dialect, early, name)
		// At MariaDB's SERIALIZABLE all reads are of the newest rows, unless it refuses.
		stale := d.snapshots() && (d.dialect != txlock.MySQL || d.level != sql.LevelSerializable || d.refusing)
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
		must(t, txlock.TryLock(ctx, d.dialect, holder, name))
		if err := txlock.TryLock(ctx, d.dialect, holder, name); err != nil {
			t.Errorf("again in the same transaction: %v", err)
		}
		err := txlock.TryLock(ctx, d.dialect, other, second, name)
		if !errors.Is(err, txlock.ErrHeld) || errors.Is(err, txlock.ErrConflict) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), second) {
			t.Errorf("a name that is held: %v, want ErrHeld", err)
		}
		// That has done no harm to the transaction.
		if err := errors.Join(d.setBalance(ctx, other, id, 3), other.Commit()); err != nil {
			t.Errorf("after ErrHeld: %v", err)
		}
		must(t, end(holder))
		next := d.begin(t)
		if err := txlock.TryLock(ctx, d.dialect, next, name, second); err != nil {
			t.Errorf("a name that was freed: %v", err)
		}
		must(t, next.Rollback())
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
	must(t, err)
	defer conn.Close()
	defer conn.ExecContext(ctx, "PRAGMA busy_timeout = 20000")
	_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	must(t, err)
	holder := d.begin(t)
	must(t, txlock.TryLock(ctx, d.dialect, holder, name))
	other, err := conn.BeginTx(ctx, nil)
	must(t, err)
	if err := txlock.TryLock(ctx, d.dialect, other, second); !errors.Is(err, txlock.ErrHeld) {
		t.Errorf("while another writes: %v, want ErrHeld", err)
	}
	if names, err := txlock.LockFree(ctx, d.dialect, other, 1, second); len(names) != 0 || err != nil {
		t.Errorf("while another writes: %v, %v; want none", names, err)
	}
	must(t, other.Rollback(), holder.Commit())
	other, err = conn.BeginTx(ctx, nil)
	must(t, err)
	if err := errors.Join(txlock.TryLock(ctx, d.dialect, other, second), other.Commit()); err != nil {
		t.Errorf("after the commit: %v", err)
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
	limits := []int{3, 2, 4, 1, 5}
	if d.sqlite() {
		limits = limits[:1] // it has one lock
	}
	taken := 0
	for i, limit := range limits {
		tx := d.begin(t) // all at the same time
		want := jobs[taken:min(taken+limit, len(jobs))]
		got, err := txlock.LockFree(within(t), d.dialect, tx, limit, append(jobs, jobs...)...)
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("worker %d with limit %d: %v, %v; want %v", i, limit, got, err, want)
		}
		taken += len(got)
	}
}

// lockShared: readers have a name at the same time, writers alone.
func lockShared(t *testing.T, d *database) {
	_, name := d.account(t)
	ctx := within(t)
	one := d.begin(t)
	must(t, txlock.LockShared(ctx, d.dialect, one, name))
	if d.sqlite() {
		return // there shared is exclusive
	}
	two, writer := d.begin(t), d.begin(t)
	must(t, txlock.LockShared(ctx, d.dialect, two, name))
	if err := txlock.TryLock(ctx, d.dialect, writer, name); !errors.Is(err, txlock.ErrHeld) {
		t.Errorf("a writer beside readers: %v", err)
	}
	must(t, one.Commit(), two.Commit(), writer.Rollback())
	writer = d.begin(t)
	if err := txlock.TryLock(ctx, d.dialect, writer, name); err != nil {
		t.Errorf("after the readers: %v", err)
	}
	read := d.async(ctx, func(tx *sql.Tx) error { return txlock.LockShared(ctx, d.dialect, tx, name) })
	d.awaitWaiters(t, 1)
	must(t, writer.Commit())
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
	two := d.begin(t)
	must(t, txlock.Lock(ctx, d.dialect, two, b))
	one := d.async(ctx, func(tx *sql.Tx) error {
		return errors.Join(txlock.Lock(ctx, d.dialect, tx, a), txlock.Lock(ctx, d.dialect, tx, b))
	})
	d.awaitWaiters(t, 1)
	second := txlock.Lock(ctx, d.dialect, two, a)
	must(t, two.Rollback())
	first := <-one
	if errors.Is(first, txlock.ErrConflict) == errors.Is(second, txlock.ErrConflict) || first != nil && second != nil {
		t.Errorf("the two say %v and %v; want ErrConflict from one", first, second)
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
	must(t, txlock.Lock(ctx, d.dialect, holder, name))
	short, cancel := context.WithCancel(ctx)
	gone := d.async(ctx, func(tx *sql.Tx) error { return txlock.Lock(short, d.dialect, tx, name) })
	d.awaitWaiters(t, 1)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || ctx.Err() != nil {
		t.Errorf("the error is %v, want the context's", err)
	}
	must(t, holder.Commit())
	if err := txlock.Lock(ctx, d.dialect, d.begin(t), name); err != nil {
		t.Errorf("after the cancelled one: %v", err)
	}
}

// rows: names without a row, created by many at once, removed.
func rows(t *testing.T, d *database) {
	ctx := within(t)
	name := fmt.Sprintf("rows/%v/%v", d.level, d.immediate)
	ofTry := txlock.ErrUnknown
	if d.dialect == txlock.MySQL {
		ofTry = txlock.ErrHeld
	}
	for _, c := range []struct {
		how  string
		lock func(context.Context, txlock.Dialect, txlock.Tx, ...string) error
		want error
	}{{"Lock", txlock.Lock, txlock.ErrUnknown}, {"TryLock", txlock.TryLock, ofTry}} {
		missing := d.begin(t)
		if err := c.lock(ctx, d.dialect, missing, name); !errors.Is(err, c.want) {
			t.Errorf("%s of a name without a row: %v, want %v", c.how, err, c.want)
		}
		must(t, missing.Rollback())
	}
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			if err := txlock.Create(ctx, d.dialect, d, name+"/b", name, name+"/a"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	byHand(t, d, name)
	remover := d.begin(t)
	must(t, txlock.Lock(ctx, d.dialect, remover, name), txlock.Remove(ctx, d.dialect, remover, name))
	waited := d.async(ctx, func(tx *sql.Tx) error { return txlock.Lock(ctx, d.dialect, tx, name) })
	d.awaitWaiters(t, 1)
	must(t, remover.Commit())
	if err := <-waited; !errors.Is(err, txlock.ErrUnknown) && !errors.Is(err, txlock.ErrConflict) {
		t.Errorf("Lock of a name that was removed meanwhile: %v", err)
	}
}

// byHand locks on a connection, without a transaction and in one that was begun by hand.
func byHand(t *testing.T, d *database, name string) {
	ctx := within(t)
	conn, err := d.Conn(ctx)
	must(t, err)
	defer conn.Close()
	for _, begin := range []bool{false, true, false} {
		if begin {
			_, err := conn.ExecContext(ctx, "BEGIN")
			must(t, err)
			for range 2 {
				if err := txlock.Lock(ctx, d.dialect, conn, name); err != nil {
					t.Errorf("in a transaction begun by hand: %v", err)
				}
			}
			_, err = conn.ExecContext(ctx, "ROLLBACK")
			must(t, err)
			continue
		}
		for how, err := range map[string]error{"Lock": txlock.Lock(ctx, d.dialect, conn, name), "Remove": txlock.Remove(ctx, d.dialect, conn, name)} {
			if err == nil || !strings.Contains(err.Error(), "*sql.Conn has none") {
				t.Errorf("%s without a transaction: %v", how, err)
			}
		}
	}
}
