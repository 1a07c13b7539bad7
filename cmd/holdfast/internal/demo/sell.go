package demo

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/fence"
)

// answer is what a user is told.
type answer string

const (
	sold    answer = "sold"
	soldOut answer = "sold out"
	hasOne  answer = "one per user"
	retry   answer = "try again" // a stale write was refused
)

// The work beside the statements, the same for all strategies: how long the shop
// waits for other systems.
func payment() time.Duration      { return 4*time.Millisecond + rand.N(2*time.Millisecond) }
func confirmation() time.Duration { return 10*time.Millisecond + rand.N(10*time.Millisecond) }

// unguarded is what a shop does before it has had its first flash sale.
func (s *service) unguarded(ctx context.Context, r request) (answer, error) {
	return s.sell(ctx, r, sale{})
}

// mutexed is what a shop does that ran as one process when it was written.
func (s *service) mutexed(ctx context.Context, r request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sell(ctx, r, sale{})
}

// sale is what strategies add to read, check and write.
type sale struct {
	admit   func(*sql.Tx) error // begins each transaction; nil: the read needs none
	written func() error        // after the write, before the rest of the transaction; may be nil
}

// sell reads, checks and writes, as applications do: nothing in it keeps others
// from doing the same at the same time. A refused token ends it with retry.
func (s *service) sell(ctx context.Context, r request, how sale) (answer, error) {
	o, err := s.read(ctx, r, how)
	switch {
	case err != nil:
		return s.refused(ctx, r, err)
	case o.bought:
		return hasOne, nil
	case o.stock <= 0:
		return soldOut, nil
	}
	if err := s.pay(ctx, r); err != nil {
		return "", err
	}
	err = s.shop.transact(ctx, func(tx *sql.Tx) error {
		if how.admit != nil {
			if err := how.admit(tx); err != nil {
				return err
			}
		}
		if err := s.shop.writeOrder(ctx, tx, r.User, o.stock-1); err != nil {
			return err
		}
		if how.written != nil {
			if err := how.written(); err != nil {
				return err
			}
		}
		return rest(ctx, confirmation())
	})
	if err != nil {
		return s.refused(ctx, r, err)
	}
	return sold, nil
}

// read is the first touch: it is guarded as the write is.
func (s *service) read(ctx context.Context, r request, how sale) (o offer, err error) {
	if how.admit == nil {
		return s.shop.offer(ctx, s.shop, r.User)
	}
	err = s.shop.transact(ctx, func(tx *sql.Tx) error {
		if err := how.admit(tx); err != nil {
			return err
		}
		o, err = s.shop.offer(ctx, tx, r.User)
		return err
	})
	return o, err
}

// refused turns the refusal of a stale token into an answer, and records it.
func (s *service) refused(ctx context.Context, r request, err error) (answer, error) {
	if !errors.Is(err, fence.ErrStale) {
		return "", err
	}
	return retry, s.shop.refused(ctx, r.User, err)
}

// pay takes the payment. A request that is to be paused says that it has come
// here, and goes on when it is told to.
func (s *service) pay(ctx context.Context, r request) error {
	if r.Pause {
		s.say(reply{AtPause: true})
		select {
		case <-s.goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return rest(ctx, payment())
}

// rest waits for d, or until the context ends.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
