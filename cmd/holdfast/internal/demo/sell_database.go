package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/optimistic"
)

// The strategies that need only the database.

// forUpdate does what the unguarded shop does, in one transaction that has locked the item before
// it reads. All others wait for its payment.
func (s *service) forUpdate(ctx context.Context, r request) (result answer, err error) {
	err = s.shop.transact(ctx, func(tx *sql.Tx) error {
		if err := s.shop.locks.Lock(ctx, tx, itemName); err != nil {
			return err
		}
		o, err := s.shop.offer(ctx, tx, r.user)
		switch {
		case err != nil:
			return err
		case o.bought:
			result = hasOne
			return nil
		case o.stock <= 0:
			result = soldOut
			return nil
		}
		if err := s.pay(ctx, r); err != nil {
			return err
		}
		if err := s.shop.writeOrder(ctx, tx, r.user, o.stock-1); err != nil {
			return err
		}
		result = sold
		return sleep(ctx, confirmation())
	})
	return result, err
}

// versioned tries again when another service was faster, until it has sold or there is nothing to
// sell. Each try but the last would have to give a payment back.
func (s *service) versioned(ctx context.Context, r request) (answer, error) {
	for {
		result, err := s.versionedOnce(ctx, r)
		if !errors.Is(err, optimistic.ErrConflict) {
			return result, err
		}
	}
}

func (s *service) versionedOnce(ctx context.Context, r request) (answer, error) {
	var stock int
	version, err := s.shop.items().Read(ctx, s.shop, 1, &stock)
	if err != nil {
		return "", err
	}
	// Each order raises the item's version, so if the version is unchanged at the write, the user
	// has not bought meanwhile either.
	bought, err := s.shop.bought(ctx, s.shop, r.user)
	switch {
	case err != nil:
		return "", err
	case bought:
		return hasOne, nil
	case stock <= 0:
		return soldOut, nil
	}
	if err := s.pay(ctx, r); err != nil {
		return "", err
	}
	once := &optimistic.Options{Tries: 1}
	return sold, optimistic.Retry(ctx, s.shop.DB, once, func(tx *sql.Tx) error {
		if err := s.shop.items().Write(ctx, tx, 1, version, stock-1); err != nil {
			return err
		}
		if _, err := s.shop.changes(ctx, tx, insertOrder, r.user); err != nil {
			return err
		}
		return sleep(ctx, confirmation())
	})
}

// errNothing rolls back a transaction that has found nothing to sell.
var errNothing = errors.New("nothing to sell")

// soldIf sells an item if take takes one, in one transaction with the order. The payment comes
// after the commit, so nobody has to wait for it. (A payment that failed would cancel the order
// and put the item back; here none fails.)
func (s *service) soldIf(
	ctx context.Context, r request, take func(*sql.Tx) (bool, error),
) (answer, error) {
	result := sold
	err := s.shop.transact(ctx, func(tx *sql.Tx) error {
		result = sold
		if taken, err := take(tx); err != nil {
			return err
		} else if !taken {
			result = soldOut
			return errNothing
		}
		// Having taken an item, this transaction has locked its row, and sees all orders.
		if bought, err := s.shop.bought(ctx, tx, r.user); err != nil {
			return err
		} else if bought {
			result = hasOne
			return errNothing
		}
		_, err := s.shop.changes(ctx, tx, insertOrder, r.user)
		return err
	})
	switch {
	case errors.Is(err, errNothing):
		return result, nil
	case err != nil:
		return "", err
	}
	if err := s.pay(ctx, r); err != nil {
		return "", err
	}
	return sold, sleep(ctx, confirmation())
}

// atomic leaves the check to the database: if another sold the last item, the statement changes
// no row.
func (s *service) atomic(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) { return s.shop.changes(ctx, tx, takeOne) })
}

// rolledBack subtracts first, and checks afterwards whether there was an item.
func (s *service) rolledBack(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) {
		if _, err := s.shop.changes(ctx, tx, decrement); err != nil {
			return false, err
		}
		o, err := s.shop.offer(ctx, tx, r.user)
		return o.stock >= 0, err
	})
}

// inserted sells rows that only one user can insert, one for each item, and of which a user can
// insert only one: two unique indexes are the only guard.
func (s *service) inserted(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) {
		for seat := range s.Stock {
			insert := fmt.Sprintf(s.shop.ignored, seatRow)
			if taken, err := s.shop.changes(ctx, tx, insert, seat+1, r.user); err != nil {
				return false, err
			} else if taken {
				return s.shop.changes(ctx, tx, decrement)
			}
		}
		return false, nil
	})
}
