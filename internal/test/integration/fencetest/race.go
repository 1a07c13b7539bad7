package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// holder increments an account's balance by a read and a write, each in a
// transaction of its own, as a program does that computes in between.
type holder struct {
	*bench
	id       int64
	resource string
	token    driver.Token
	base     int64 // what it read
	blind    bool  // guards writes alone
}

func (h *holder) read(ctx context.Context) error {
	return h.tx(ctx, func(tx *sql.Tx) (err error) {
		if !h.blind {
			if err := h.dialect.Admit(ctx, tx, h.resource, h.token, driver.Exclusive); err != nil {
				return err
			}
		}
		h.base, err = h.balance(ctx, tx, h.id)
		return err
	})
}

func (h *holder) write(ctx context.Context) error {
	return h.tx(ctx, func(tx *sql.Tx) error {
		if err := h.dialect.Admit(ctx, tx, h.resource, h.token, driver.Exclusive); err != nil {
			return err
		}
		return h.setBalance(ctx, tx, h.id, h.base+1)
	})
}

// pausedWriter lets one holder read, pauses it while its lock passes on and the
// next holder reads, and lets it write. The guard on every touch stops it; the
// guard on writes alone lets it through, and one of two updates is lost.
func pausedWriter(t *testing.T, b *bench) {
	for _, blind := range []bool{false, true} {
		id, resource := b.account(t)
		old := &holder{bench: b, id: id, resource: resource, token: 1, blind: blind}
		young := &holder{bench: b, id: id, resource: resource, token: 2, blind: blind}
		acknowledged := int64(0)
		for i, step := range []func(context.Context) error{old.read, young.read, old.write, young.write} {
			err := step(t.Context())
			if stopped := i == 2 && !blind; stopped != errors.Is(err, fence.ErrStale) || !stopped && err != nil {
				t.Fatalf("guard on writes alone %v, step %d: %v", blind, i, err)
			}
			if i >= 2 && err == nil {
				acknowledged++
			}
		}
		n, err := b.balance(t.Context(), b.db, id)
		if err != nil {
			t.Fatal(err)
		}
		if lost := acknowledged - n; lost != 0 != blind {
			t.Errorf("guard on writes alone %v: %d updates acknowledged, %d there", blind, acknowledged, n)
		}
	}
}

// pausedReader lets a shared hold read twice. Neither a newer writer nor an
// older one that wakes up may change what it sees in between unnoticed.
func pausedReader(t *testing.T, b *bench) {
	ctx := t.Context()
	touch := func(resource string, token driver.Token, mode driver.Mode) error {
		return b.tx(ctx, func(tx *sql.Tx) error { return b.dialect.Admit(ctx, tx, resource, token, mode) })
	}
	_, resource := b.account(t)
	for i, step := range []struct {
		token driver.Token
		mode  driver.Mode
		stale bool
	}{
		{2, driver.Shared, false},
		{3, driver.Shared, false},    // a second reader beside the first
		{2, driver.Shared, false},    // which goes on
		{1, driver.Exclusive, true},  // an older writer wakes up
		{4, driver.Exclusive, false}, // a newer writer
		{2, driver.Shared, true},     // the first reader would see something else now
		{5, driver.Shared, false},
	} {
		if err := touch(resource, step.token, step.mode); errors.Is(err, fence.ErrStale) != step.stale || !step.stale && err != nil {
			t.Errorf("step %d: %v token %d: %v", i, step.mode, step.token, err)
		}
	}
}

// guardAfterRead reads before the guard, against the rule, while an older
// holder's transaction commits. Depending on the database the transaction is
// refused, or an update is lost.
// It does not apply to MySQL's serializable level: every SELECT locks its rows
// there, and the other transaction would wait for this one.
func guardAfterRead(t *testing.T, b *bench) {
	ctx := t.Context()
	id, resource := b.account(t)
	other := &holder{bench: b, id: id, resource: resource, token: 1}
	err := b.tx(ctx, func(tx *sql.Tx) error {
		base, err := b.balance(ctx, tx, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(other.read(ctx), other.write(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := b.dialect.Admit(ctx, tx, resource, 2, driver.Exclusive); err != nil {
			return err
		}
		return b.setBalance(ctx, tx, id, base+1)
	})
	n, readErr := b.balance(ctx, b.db, id)
	if n != 1 || readErr != nil {
		t.Fatalf("balance %d, %v; want 1", n, readErr)
	}
	refuses := b.dialect == fence.SQLite || b.level != sql.LevelReadCommitted && (b.dialect == fence.Postgres || b.snapshots(t))
	if (err != nil) != refuses || errors.Is(err, fence.ErrStale) {
		t.Errorf("the transaction that read too early: %v; the documentation says that the database refuses it: %v", err, refuses)
	}
}

// snapshots reports whether the database is a MariaDB that keeps a transaction
// from changing rows that are newer than its snapshot, as PostgreSQL does
// (innodb_snapshot_isolation, on by default from MariaDB 11.6.2).
func (b *bench) snapshots(t *testing.T) bool {
	var name, value string
	err := b.db.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return value == "ON"
}

// twoResources moves a unit from one account to another under two locks, with
// both guards first, and is between the two when an older holder of the second
// account commits. Whatever the level, it sees what that one wrote.
func twoResources(t *testing.T, b *bench) {
	ctx := t.Context()
	from, fromResource := b.account(t)
	to, toResource := b.account(t)
	older, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: b.level})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		b.dialect.Admit(ctx, older, toResource, 1, driver.Exclusive),
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
				if err := b.dialect.Admit(ctx, tx, fromResource, 2, driver.Exclusive); err != nil {
					return err
				}
				if first {
					first = false
					close(between)
				}
				if err := b.dialect.Admit(ctx, tx, toResource, 2, driver.Exclusive); err != nil {
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
	if err := older.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
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
