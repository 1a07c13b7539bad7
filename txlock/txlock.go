// Package txlock locks names inside the caller's own database transaction, by SELECT … FOR UPDATE: the lock
// and the work it protects are committed together, or not at all. Such a lock has no lease that can end too
// early, needs no fencing token, and is freed by the commit or the rollback, also by that of a client that
// died.
//
// It is the right form where all that is protected is in one database, and the work is short: the
// transaction, its connection and the lock last equally long. Where the work goes beyond the database use a
// lease, and let the database check its token: packages holdfast and fence.
//
// # Names are rows
//
// A name is a row of the table holdfast_txlock (see [Schema]), which must be committed before it can
// be locked: a lock that first had to insert its row would wait for other transactions where it must not, and
// deadlock in MySQL. Create the row together with the thing that it stands for, in the same transaction, or,
// for fixed names, at the start of the program:
//
//	err := txlock.Create(ctx, txlock.Postgres, db, "stock/apple")
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	err = txlock.Lock(ctx, txlock.Postgres, tx, "stock/apple") // first, before any read
//
// Remove it, with [Remove], under its lock. Nothing but the program creates or deletes rows.
//
// # What is promised
//
// After [Lock] the transaction sees all that earlier holders of the name have committed, and no other
// transaction has the name until this one ends. Where a level of isolation does not allow that, the lock
// fails with [ErrConflict] rather than let the transaction work on old data. The transaction can then be run
// again from its beginning (optimistic.Retry does that). In detail:
//
//   - PostgreSQL, READ COMMITTED: the transaction waits, then sees the newest data.
//     REPEATABLE READ and SERIALIZABLE: the same, but the lock fails (SQLSTATE 40001) if
//     another had the name since this transaction's snapshot was taken. Its first
//     statement takes it, which may be the lock itself, before it waits.
//   - MySQL and MariaDB with InnoDB, READ COMMITTED and SERIALIZABLE: the newest data.
//     REPEATABLE READ, their default: the lock must be the first that the
//     transaction does, because the first plain SELECT fixes what all later ones see.
//     If that is too old the lock finds out, and fails. MariaDB with
//     innodb_snapshot_isolation, the default from 11.6 on, is at SERIALIZABLE as
//     PostgreSQL.
//   - SQLite has no locks of rows: each function takes the write lock of the whole
//     database file. So different names, and shared holders, exclude each other too.
//     Waiting ends after the connection's busy timeout, with ErrConflict; the end of a
//     context is noticed only then. In a transaction that was begun with BEGIN
//     IMMEDIATE (in modernc.org/sqlite: _txlock=immediate) it is BeginTx that waits. If
//     the transaction has read before, and another has written since, the lock fails at
//     once.
//
// At every level data that was read before the lock may be old: read it again. READ UNCOMMITTED is not
// supported.
//
// # Deadlocks
//
// The names of one call are locked in the order of their bytes. So transactions that lock all their names in
// one call, before anything else, cannot deadlock over them. A program that locks in several calls must keep
// one order itself. The database finds a deadlock and ends one of the transactions with ErrConflict:
// PostgreSQL after a second.
//
// After every error, except [ErrHeld] from [TryLock] of one name, roll back. MySQL has often rolled
// back by itself; further statements of the *sql.Tx are then outside of any transaction, and are not undone.
package txlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/sqlerr"
	"github.com/holdfastlock/holdfast/sqldialect"
)

// The errors of this package. Match them with errors.Is. The error of the database is wrapped beside them.
var (
	// ErrHeld: another transaction has the name; see [TryLock].
	ErrHeld = errors.New("locked by another transaction")
	// ErrConflict: the transaction cannot go on because of another: a deadlock, a lock timeout, a serialization
	// failure, a snapshot that is too old. Roll back; the whole transaction may be run again. It is the same
	// error as optimistic.ErrConflict.
	ErrConflict = sqlerr.ErrConflict
	// ErrUnknown: the name has no row that this transaction can see; see [Create].
	ErrUnknown = errors.New("name has no row")
)

// Dialect is a database's SQL. It is the same type in packages sqllock, fence and optimistic.
type Dialect = sqldialect.Dialect

// The dialects.
const (
	Postgres = sqldialect.Postgres // PostgreSQL 9.5 and later
	MySQL    = sqldialect.MySQL    // MariaDB 10.6 and MySQL 8.0, and later; InnoDB tables
	SQLite   = sqldialect.SQLite   // SQLite 3.35 and later
)

// Tx is the transaction that does the work. It is used by one goroutine at a time.
type Tx = sqldialect.Tx

// Lock locks the names exclusively, and waits for transactions that have them. Its errors are [ErrConflict],
// [ErrUnknown] and others of the database or the context.
//
// The wait is bounded by the context and by the server's settings: lock_timeout in PostgreSQL (none by
// default), innodb_lock_wait_timeout in MySQL (50 s), the busy timeout of the connection in SQLite.
func Lock(ctx context.Context, d Dialect, tx Tx, names ...string) error {
	_, err := lock(ctx, d, tx, exclusive, inOrder(names), len(names))
	return err
}

// LockShared is Lock for transactions that only read what the names protect: any number of them can have a
// name at the same time, while none has it exclusively. A stream of them can keep out one that wants it
// exclusively. A transaction that is going to lock a name exclusively must not lock it shared first: two that
// do are a deadlock.
func LockShared(ctx context.Context, d Dialect, tx Tx, names ...string) error {
	_, err := lock(ctx, d, tx, shared, inOrder(names), len(names))
	return err
}

// TryLock is Lock without waiting, as by NOWAIT: if another transaction has one of the names, shared or not,
// it returns [ErrHeld]. That does no harm to the transaction, and writes nothing into the server's log; but
// of several names it may have locked some, which stay locked until it ends.
//
// In SQLite it waits for the busy timeout, as every write does. In MySQL a name without a row counts as held:
// to tell the one from the other it would have to wait at some levels of isolation.
func TryLock(ctx context.Context, d Dialect, tx Tx, names ...string) error {
	names = inOrder(names)
	locked, err := lock(ctx, d, tx, free, names, len(names))
	if err != nil || len(locked) == len(names) {
		return err
	}
	held := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(locked, name) })
	return fmt.Errorf("txlock: %w: %q", ErrHeld, held)
}

// LockFree locks, without waiting, up to limit of those names that no other transaction has, as by SKIP
// LOCKED, and returns them: the first free ones in the given order. None is not an error. It is for workers
// that share out a list of jobs. See TryLock for names without a row, and for SQLite, where it is all or
// nothing.
func LockFree(ctx context.Context, d Dialect, tx Tx, limit int, names ...string) ([]string, error) {
	if limit < 1 {
		return nil, fmt.Errorf("txlock: limit %d is too small: at least 1", limit)
	}
	return lock(ctx, d, tx, free, names, limit)
}

// inOrder returns the names sorted, each once.
func inOrder(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// lock locks up to limit of the names, in the given order, and returns them.
func lock(ctx context.Context, d Dialect, tx Tx, m mode, names []string, limit int) ([]string, error) {
	if err := check(ctx, d, tx, names); err != nil {
		return nil, err
	}
	l := locking{ctx: ctx, tx: tx, dialect: d, mode: m}
	for _, name := range names {
		if len(l.locked) == limit {
			break
		}
		if err := l.take(name); err != nil {
			return nil, failed("locking", name, err)
		}
	}
	if name, err := l.verify(); err != nil {
		return nil, failed("locking", name, err)
	}
	return l.locked, nil
}

// check returns an error if this can never succeed (P10). It checks the names first, before any statement.
func check(ctx context.Context, d Dialect, tx Tx, names []string) error {
	if err := checkNames(d, names); err != nil {
		return err
	}
	if err := d.CheckTx(ctx, tx); err != nil {
		return fmt.Errorf("txlock: %w", sqlerr.Judged(err))
	}
	return nil
}

func checkNames(d Dialect, names []string) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("txlock: %w", err)
	}
	if len(names) == 0 {
		return errors.New("txlock: no name")
	}
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return fmt.Errorf("txlock: %w", err)
		}
	}
	return nil
}

// failed adds to an error what was being done, and ErrConflict if it means that.
func failed(doing, name string, err error) error {
	return fmt.Errorf("txlock: %s %q: %w", doing, name, sqlerr.InTable("holdfast_txlock", sqlerr.Judged(err)))
}
