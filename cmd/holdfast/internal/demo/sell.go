package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/fence"
)

// request is that of a user who wants an item.
type request struct {
	user  int
	pause bool // pause at the payment, and report that
}

// answer is what a user is told.
type answer string

const (
	sold    answer = "sold"
	soldOut answer = "sold out"
	hasOne  answer = "one per user"
	retry   answer = "try again" // a stale write was refused
)

// The work beside the statements, the same for all strategies: how long the shop waits for other
// systems.
func payment() time.Duration      { return 4*time.Millisecond + rand.N(2*time.Millisecond) }
func confirmation() time.Duration { return 10*time.Millisecond + rand.N(10*time.Millisecond) }

// unguarded is how a shop sells before its first flash sale.
func (s *service) unguarded(ctx context.Context, r request) (answer, error) {
	return s.sell(ctx, r, guard{})
}

// mutexed is how a shop sells that was written to run as one process.
func (s *service) mutexed(ctx context.Context, r request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sell(ctx, r, guard{})
}

// guard is what strategies add to reading, checking and writing.
type guard struct {
	admit   func(*sql.Tx) error // begins each transaction; nil: the read needs no transaction
	written func() error        // after the write, before the rest of the transaction; may be nil
}

// sell reads, checks and writes, as applications do: nothing in it keeps others from doing the
// same at the same time. If the database refuses the fencing token the answer is retry.
func (s *service) sell(ctx context.Context, r request, g guard) (answer, error) {
	o, err := s.read(ctx, r, g)
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
		if g.admit != nil {
			if err := g.admit(tx); err != nil {
				return err
			}
		}
		if err := s.shop.writeOrder(ctx, tx, r.user, o.stock-1); err != nil {
			return err
		}
		if g.written != nil {
			if err := g.written(); err != nil {
				return err
			}
		}
		return sleep(ctx, confirmation())
	})
	if err != nil {
		return s.refused(ctx, r, err)
	}
	return sold, nil
}

// read reads the stock, guarded as the write is: the guard learns the token at the first touch.
func (s *service) read(ctx context.Context, r request, g guard) (o offer, err error) {
	if g.admit == nil {
		return s.shop.offer(ctx, s.shop, r.user)
	}
	err = s.shop.transact(ctx, func(tx *sql.Tx) error {
		if err := g.admit(tx); err != nil {
			return err
		}
		o, err = s.shop.offer(ctx, tx, r.user)
		return err
	})
	return o, err
}

// refused turns the refusal of a stale token into an answer, and records it.
func (s *service) refused(ctx context.Context, r request, err error) (answer, error) {
	if !errors.Is(err, fence.ErrStale) {
		return "", err
	}
	return retry, s.shop.recordRefusal(ctx, r.user, err)
}

// pay takes the payment. A request that is to be paused reports that it has come here, and goes
// on when the process is ordered to.
func (s *service) pay(ctx context.Context, r request) error {
	if r.pause {
		report(atPayment)
		var at time.Time
		if err := s.in.Decode(&at); err != nil {
			return fmt.Errorf("demo: waiting for the end of the pause: %w", err)
		}
	}
	return sleep(ctx, payment())
}

// sleep waits for d, or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
