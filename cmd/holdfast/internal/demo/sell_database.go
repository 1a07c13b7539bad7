package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/optimistic"
)

// The strategies that need nothing but the database.

// forUpdate does what the unguarded shop does, in one transaction that has locked the item
// before it reads. All others wait for its payment.
func (s *service) forUpdate(ctx context.Context, r request) (result answer, err error) {
	err = s.shop.transact(ctx, func(tx *sql.Tx) error {
		if err := s.shop.locks.Lock(ctx, tx, itemName); err != nil {
			return err
		}
		o, err := s.shop.offer(ctx, tx, r.User)
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
		if err := s.shop.writeOrder(ctx, tx, r.User, o.stock-1); err != nil {
			return err
		}
		result = sold
		return rest(ctx, confirmation())
	})
	return result, err
}

// versioned does it again where another was faster, until it has sold or sees that it
// cannot. Each time but the last a payment is given back.
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
	// Each order raises the item's version, so this too holds as long as that does.
	bought, err := s.shop.bought(ctx, s.shop, r.User)
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
	return sold, optimistic.Retry(ctx, s.shop.DB, &optimistic.Options{Tries: 1}, func(tx *sql.Tx) error {
		if err := s.shop.items().Write(ctx, tx, 1, version, stock-1); err != nil {
			return err
		}
		if _, err := s.shop.changes(ctx, tx, insertOrder, r.User); err != nil {
			return err
		}
		return rest(ctx, confirmation())
	})
}

// errNothing rolls back a transaction that has found nothing to sell.
var errNothing = errors.New("nothing to sell")

// soldIf has take take an item in a transaction with the order, and the payment after
// it: nobody has to wait for a payment, because nothing rests on what was
// read before it. (If it fails, the order is cancelled and the item goes back;
// here it does not.)
func (s *service) soldIf(ctx context.Context, r request, take func(*sql.Tx) (bool, error)) (answer, error) {
	result := sold
	err := s.shop.transact(ctx, func(tx *sql.Tx) error {
		result = sold
		if taken, err := take(tx); err != nil {
			return err
		} else if !taken {
			result = soldOut
			return errNothing
		}
		// Who has taken an item keeps all others from the row, and sees their orders.
		if bought, err := s.shop.bought(ctx, tx, r.User); err != nil {
			return err
		} else if bought {
			result = hasOne
			return errNothing
		}
		_, err := s.shop.changes(ctx, tx, insertOrder, r.User)
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
	return sold, rest(ctx, confirmation())
}

// atomic leaves it to the database: where another was faster, the statement
// changes nothing.
func (s *service) atomic(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) { return s.shop.changes(ctx, tx, takeOne) })
}

// rolledBack subtracts first, and looks afterwards whether there was anything.
func (s *service) rolledBack(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) {
		if _, err := s.shop.changes(ctx, tx, decrement); err != nil {
			return false, err
		}
		o, err := s.shop.offer(ctx, tx, r.User)
		return o.stock >= 0, err
	})
}

// inserted has each item be a row, which but one can insert: the index is the only
// guard. A user can have but one of them.
func (s *service) inserted(ctx context.Context, r request) (answer, error) {
	return s.soldIf(ctx, r, func(tx *sql.Tx) (bool, error) {
		for seat := range s.config.Stock {
			if taken, err := s.shop.changes(ctx, tx, fmt.Sprintf(s.shop.ignored, seatRow), seat+1, r.User); err != nil {
				return false, err
			} else if taken {
				return s.shop.changes(ctx, tx, decrement)
			}
		}
		return false, nil
	})
}
