package demo

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast"
)

// shortTTL is that of the strategies with a pause, which lasts longer.
func shortTTL(store holdfast.Caps) time.Duration {
	return max(400*time.Millisecond, store.MinTTL)
}

// mutex returns the lock of the item, which all services share.
func (s *service) mutex(o *holdfast.Options) *holdfast.Lock {
	return s.locks.Mutex(s.config.Name, o)
}

// fenced returns a sale whose every transaction hands the database the token.
// Where the store gives none the sale goes without.
func (s *service) fenced(ctx context.Context, lease *holdfast.Lease) sale {
	if !s.locks.Caps().Fencing {
		return sale{}
	}
	return sale{admit: func(tx *sql.Tx) error {
		return s.shop.fence.Admit(ctx, tx, s.config.Name, lease.Token(), lease.Mode())
	}}
}

// locked is how it is meant to be done. The context ends when the lock can no
// longer be trusted.
func (s *service) locked(ctx context.Context, r request) (result answer, err error) {
	err = s.mutex(nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) (err error) {
		result, err = s.sell(ctx, r, s.fenced(ctx, lease))
		return err
	})
	return result, err
}

// releasedEarly is what happens where the lock is inside of the transaction: a
// function that locks and unlocks, called by one that begins and commits.
func (s *service) releasedEarly(ctx context.Context, r request) (result answer, err error) {
	lease, err := s.mutex(nil).Acquire(ctx)
	if err != nil {
		return "", err
	}
	result, err = s.sell(ctx, r, sale{written: lease.Release})
	return result, errors.Join(err, lease.Release())
}

// lockedUnfenced has a good lease to begin with, and does not look at it again.
// However late a program looks, it can be paused after that.
func (s *service) lockedUnfenced(ctx context.Context, r request) (answer, error) {
	return s.lockedShortly(ctx, r, func(*holdfast.Lease) sale { return sale{} })
}

// lockedFenced does the same; the database knows better.
func (s *service) lockedFenced(ctx context.Context, r request) (answer, error) {
	return s.lockedShortly(ctx, r, func(lease *holdfast.Lease) sale { return s.fenced(ctx, lease) })
}

func (s *service) lockedShortly(ctx context.Context, r request, how func(*holdfast.Lease) sale) (answer, error) {
	lease, err := s.mutex(&holdfast.Options{TTL: shortTTL(s.locks.Caps())}).Acquire(ctx)
	if err != nil {
		return "", err
	}
	result, err := s.sell(ctx, r, how(lease))
	// That the lock was lost is learnt here, when the order is written. Where the store
	// is too busy to answer within the short TTL, the lock ends by that.
	if lost := lease.Release(); !errors.Is(lost, holdfast.ErrLost) && !errors.Is(lost, holdfast.ErrUncertain) {
		err = errors.Join(err, lost)
	}
	return result, err
}
