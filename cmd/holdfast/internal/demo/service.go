package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the client of SQLite

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/optimistic"
)

// A real shop would have CHECK (stock >= 0) as a last line of defence. Here it would hide the mistakes that
// are to be shown.
var createShop = fence.SQLite.Schema() + `;
	CREATE TABLE orders (id INTEGER PRIMARY KEY);
	CREATE TABLE item (stock INTEGER NOT NULL);
	INSERT INTO item (stock) VALUES (?)`

// openShop opens the database in a file. Readers and a writer work side by side (the write-ahead log), and
// writers wait for each other (the busy timeout).
func openShop(path string) (*sql.DB, error) {
	query := url.Values{"_pragma": {"busy_timeout(20000)", "journal_mode(wal)", "synchronous(normal)"}}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	return sql.Open("sqlite", u.String())
}

// Lines that a service writes.
const (
	sold      = "sold"
	retry     = "try again"  // the database refused a stale token
	atPayment = "at payment" // the request that is to be paused has come there
)

// service is the work of an order service.
type service struct {
	Database   string // its file
	Lock       string // the lock's name; "": it sells without one
	TTL        time.Duration
	Fence      bool // the database checks the lock's token
	PauseFirst bool // the first of them is paused at the payment

	db   *sql.DB
	lock *holdfast.Lock
}

// serve answers all users at the same time. If the first of them is to be paused, the others wait until that
// one has been answered.
func (s *service) serve(ctx context.Context, locks *holdfast.Client) (err error) {
	if s.db, err = openShop(s.Database); err != nil {
		return err
	}
	defer s.db.Close()
	s.db.SetMaxOpenConns(8)
	if s.Lock != "" {
		s.lock = locks.Mutex(s.Lock, &holdfast.Options{TTL: s.TTL})
	}
	answers := make(chan error, usersEach)
	for i := range usersEach {
		if s.PauseFirst && i == 0 {
			answers <- s.answer(ctx, true)
			continue
		}
		go func() { answers <- s.answer(ctx, false) }()
	}
	for range usersEach {
		if err := <-answers; err != nil {
			return err // the end of the process ends the other requests
		}
	}
	return nil
}

// answer sells to a user, inside the lock if there is one, and writes what the user is told.
func (s *service) answer(ctx context.Context, pause bool) (err error) {
	var lease *holdfast.Lease
	if s.lock != nil {
		if lease, err = s.lock.Acquire(ctx); err != nil {
			return err
		}
		// A holder that was paused learns only here that it has lost the lock. However late a program checks
		// its lease, it can be paused after that. A release without an answer goes on in the background.
		defer lease.Release()
	}
	answer, err := s.sell(ctx, lease, pause)
	if errors.Is(err, fence.ErrStale) {
		answer, err = retry, nil
	}
	if err == nil {
		fmt.Println(answer)
	}
	return err
}

// sell reads, checks, takes the payment and writes, as applications do: nothing in it keeps others from
// doing the same at the same time.
func (s *service) sell(ctx context.Context, lease *holdfast.Lease, pause bool) (answer string, err error) {
	var left int
	err = s.transact(ctx, lease, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT stock FROM item").Scan(&left)
	})
	if err != nil || left <= 0 {
		return "sold out", err
	}
	if pause {
		fmt.Println(atPayment)
		io.Copy(io.Discard, os.Stdin) // it ends when the pause does
	}
	time.Sleep(4*time.Millisecond + rand.N(2*time.Millisecond)) // the payment
	err = s.transact(ctx, lease, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE item SET stock = ?", left-1); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO orders DEFAULT VALUES")
		return err
	})
	return sold, err
}

// transact runs fn in a transaction, which an error rolls back. The database checks the token first, in the
// transaction that reads too: it learns a token at the first touch.
func (s *service) transact(ctx context.Context, lease *holdfast.Lease, fn func(*sql.Tx) error) error {
	return optimistic.Retry(ctx, s.db, nil, func(tx *sql.Tx) error {
		if s.Fence {
			if err := fence.SQLite.Admit(ctx, tx, "item", lease.Token(), lease.Mode()); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}
