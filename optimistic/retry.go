package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/internal/sqlerr"
)

// Options say how often and how soon to try again after a conflict. A nil *Options and the
// zero value of each field are the defaults.
type Options struct {
	// Tries is the number of tries in all. 0: 20.
	Tries int
	// Pause bounds the pause before the second try, which is drawn at random. The bound
	// doubles with each try, up to MaxPause. 0: 2 ms.
	Pause time.Duration
	// MaxPause is at least Pause. 0: 250 ms, or Pause if that is longer.
	MaxPause time.Duration
	// Tx are the options of each transaction of [Retry]. nil: the database's
	// defaults.
	Tx *sql.TxOptions
}

// Defaults of Options.
const (
	defaultTries    = 20
	defaultPause    = 2 * time.Millisecond
	defaultMaxPause = 250 * time.Millisecond
)

// Retry runs fn in a transaction and commits it. If there is a conflict it rolls back and
// runs fn again, in a new transaction: the old one would see its old snapshot for ever. A
// conflict is found by [Table.Write], by package txlock or by the database (a deadlock, a
// serialization failure, a lock timeout, a busy SQLite), also in the commit. After the last
// try Retry returns the conflict, which matches [ErrConflict]. After any other error of fn it
// rolls back and returns that error.
//
// fn must return the first error of its statements and do nothing after it: MySQL may have
// left the transaction, and further statements would not be undone. It must not keep, commit
// or roll back the transaction, nor do anything else that must not be done twice.
func Retry(ctx context.Context, db *sql.DB, o *Options, fn func(*sql.Tx) error) error {
	var options *sql.TxOptions
	if o != nil {
		options = o.Tx
	}
	return again(ctx, o, func() error {
		tx, err := db.BeginTx(ctx, options)
		if err != nil {
			return fmt.Errorf("optimistic: %w", err)
		}
		defer tx.Rollback() // does nothing after the commit
		if err := fn(tx); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("optimistic: commit: %w", err)
		}
		return nil
	})
}

// RetryFunc is Retry for client libraries beside database/sql: try is one try, which begins a
// transaction, does the work, and commits or rolls back. With pgx:
//
//	err := optimistic.RetryFunc(ctx, nil, func() error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			return transfer(ctx, pgconn.FromTx(tx)) // reads and writes by Table.Read and Table.Write
//		})
//	})
//
// RetryFunc calls try again while that returns a conflict. What is said at [Retry] of fn holds for
// the work. Options.Tx is not used.
func RetryFunc(ctx context.Context, o *Options, try func() error) error { return again(ctx, o, try) }

// again runs try until it returns no conflict, with pauses that grow.
func again(ctx context.Context, o *Options, try func() error) error {
	tries, bound, longest, err := o.settings()
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := sqlerr.Judged(try())
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if n >= tries {
			return fmt.Errorf("optimistic: given up after %d tries: %w", n, err)
		}
		if !pause.Sleep(ctx, rand.N(bound+1)) {
			return fmt.Errorf("optimistic: %w, after: %w", context.Cause(ctx), err)
		}
		bound = min(2*bound, longest)
	}
}

// settings returns the options with their defaults.
func (o *Options) settings() (tries int, pause, longest time.Duration, err error) {
	if o == nil {
		o = &Options{}
	}
	tries, pause, longest = o.Tries, o.Pause, o.MaxPause
	if tries == 0 {
		tries = defaultTries
	}
	if pause == 0 {
		pause = defaultPause
	}
	if longest == 0 {
		longest = max(defaultMaxPause, pause)
	}
	if tries < 1 || pause < 0 || longest < pause {
		err = fmt.Errorf("optimistic: tries %d, pause %v and longest pause %v: at least 1, 0 and the pause", tries, pause, longest)
	}
	return tries, pause, longest, err
}
