package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/internal/sqlerr"
)

// Options say how often and how soon a conflict is tried again. A nil *Options and
// the zero value of each field are the defaults.
type Options struct {
	// Tries is how often it is tried in all. 0: 20. 1: once.
	Tries int
	// Pause is how long to wait before the second try at most; it is drawn at
	// random from 0, and its bound doubles with each try, up to MaxPause. 0: 2 ms.
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

// Retry runs fn in a transaction and commits it. If it ends in a conflict, found by
// [Table.Write], by package txlock or by the database (a deadlock, a serialization
// failure, a lock timeout, a busy SQLite), also in the commit, then all is rolled back
// and fn is run again, in a new transaction: one that has seen an old snapshot would
// see it for ever. After the last try the error is that conflict, and matches
// [ErrConflict]. Any other error of fn rolls back, and is returned.
//
// fn must return the first error of its statements and do nothing after it: MySQL may
// have left the transaction, and what comes then would stay. It must not keep,
// commit or roll back the transaction, nor do anything else that must not be done twice.
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

// again runs try until it returns no conflict, with pauses that grow.
func again(ctx context.Context, o *Options, try func() error) error {
	tries, pause, longest, err := o.settle()
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
		timer := time.NewTimer(rand.N(pause + 1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("optimistic: %w, after: %w", context.Cause(ctx), err)
		}
		pause = min(2*pause, longest)
	}
}

// settle returns the options with their defaults.
func (o *Options) settle() (tries int, pause, longest time.Duration, err error) {
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
