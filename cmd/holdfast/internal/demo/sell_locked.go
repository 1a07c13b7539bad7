package demo

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast"
)

// shortTTL is the TTL of the strategies with a pause, which is shorter than the pause.
func shortTTL(store holdfast.Caps) time.Duration {
	return max(400*time.Millisecond, store.MinTTL)
}

// mutex returns the lock of the item, which all services share.
func (s *service) mutex(o *holdfast.Options) *holdfast.Lock {
	return s.locks.Mutex(s.Name, o)
}

// fenced returns a guard that hands the database the token in each transaction. If the store gives
// no tokens the guard does nothing.
func (s *service) fenced(ctx context.Context, lease *holdfast.Lease) guard {
	if !s.locks.Caps().Fencing {
		return guard{}
	}
	return guard{admit: func(tx *sql.Tx) error {
		return s.shop.fence.Admit(ctx, tx, s.Name, lease.Token(), lease.Mode())
	}}
}

// locked is how a lock is meant to be used. Do's context ends when the lock can no longer be
// trusted.
func (s *service) locked(ctx context.Context, r request) (result answer, err error) {
	err = s.mutex(nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) (err error) {
		result, err = s.sell(ctx, r, s.fenced(ctx, lease))
		return err
	})
	if result != "" && errors.Is(err, holdfast.ErrUncertain) {
		err = nil // it has sold; the release had no answer in time, and goes on in the background
	}
	return result, err
}

// releasedEarly shows what happens where the lock is inside the transaction: one function locks
// and unlocks, and its caller begins and commits.
func (s *service) releasedEarly(ctx context.Context, r request) (result answer, err error) {
	lease, err := s.mutex(nil).Acquire(ctx)
	if err != nil {
		return "", err
	}
	result, err = s.sell(ctx, r, guard{written: lease.Release})
	return result, errors.Join(err, lease.Release())
}

// lockedUnfenced has a valid lease to begin with, and does not check it again. However late a
// program checks its lease, it can be paused after that.
func (s *service) lockedUnfenced(ctx context.Context, r request) (answer, error) {
	return s.lockedShortly(ctx, r, func(*holdfast.Lease) guard { return guard{} })
}

// lockedFenced does the same, but the database refuses the token of the paused holder.
func (s *service) lockedFenced(ctx context.Context, r request) (answer, error) {
	return s.lockedShortly(ctx, r, func(lease *holdfast.Lease) guard { return s.fenced(ctx, lease) })
}

// lockedShortly sells under a lock with a short TTL.
func (s *service) lockedShortly(
	ctx context.Context, r request, guarded func(*holdfast.Lease) guard,
) (answer, error) {
	lease, err := s.mutex(&holdfast.Options{TTL: shortTTL(s.locks.Caps())}).Acquire(ctx)
	if err != nil {
		return "", err
	}
	result, err := s.sell(ctx, r, guarded(lease))
	// The holder that was paused learns only here that it has lost the lock, after its write. If
	// the store is too busy to answer within the short TTL, the hold ends by that.
	released := lease.Release()
	if !errors.Is(released, holdfast.ErrLost) && !errors.Is(released, holdfast.ErrUncertain) {
		err = errors.Join(err, released)
	}
	return result, err
}
