// Package goose has a locker for pressly/goose: one of several processes that start at once runs
// the migrations, and the others wait.
//
//	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
//		goose.WithLocker(hfgoose.NewLocker(locks.Mutex("migrations/app", nil))))
//	_, err = p.Up(ctx)
//
// Goose's own locks belong to a session of PostgreSQL: through a pooler in transaction mode they
// exclude nothing. This one needs no session, works with every database that goose knows, and may
// be in another store than the data.
//
// Goose cannot be told in the middle of a migration that the lock was lost, so Up then returns the
// loss at its end. Where a second run must not begin beside the first, use holdfast.Lock.Do around
// Up, instead of a locker: its context ends when the lock is lost.
package goose

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfastlock/holdfast"
)

// Locker is goose's lock.Locker, for one provider. Safe for concurrent use.
type Locker struct {
	lock *holdfast.Lock

	mu    sync.Mutex
	lease *holdfast.Lease
}

var _ lock.Locker = (*Locker)(nil)

// NewLocker returns a locker for goose.WithLocker. Each provider needs one of its own.
func NewLocker(l *holdfast.Lock) *Locker { return &Locker{lock: l} }

// Lock waits for the lock, as long as the context lasts. The database is not used.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.lock.Acquire(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil { // of another provider: its hold was lost
		return errors.Join(errors.New("goose: a locker is for one provider only"), lease.ReleaseNow())
	}
	l.lease = lease
	return nil
}

// Unlock releases the lock. The error is a *holdfast.LostError if the lock was lost before.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		return holdfast.ErrNotHeld
	}
	return lease.Release()
}
