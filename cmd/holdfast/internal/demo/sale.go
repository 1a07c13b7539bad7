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
	"strings"
	"time"

	_ "modernc.org/sqlite" // the client of SQLite

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/optimistic"
)

// strategy is a way to keep two sales of the same item apart.
type strategy struct {
	name, what string
	locks      bool // it sells inside a lock of the store
	fence      bool // it has the database check the lock's fencing token
	pause      bool // its first holder is stopped between its read and its write
}

// strategies are shown in this order. The names are an interface.
var strategies = []strategy{
	{name: "none", what: "read the stock, take the payment, write stock-1 and the order"},
	{name: "lock", locks: true, fence: true, what: "the same inside a lock, whose fencing token the database checks"},
	{name: "paused-unfenced", locks: true, pause: true, what: "a lock without a token; a holder is stopped (SIGSTOP) past its TTL"},
	{name: "paused-fenced", locks: true, fence: true, pause: true, what: "the same pause, but the database checks the token at each step"},
}

const services, usersEach, stock = 4, 25, 3

// Result is the result of a strategy. It is the JSON form too.
type Result struct {
	Strategy     string `json:"strategy"`
	What         string `json:"what"` // what the code does
	Stock        int    `json:"stock"`
	Sold         int    `json:"sold"`          // orders
	Oversold     int    `json:"oversold"`      // orders for which there is no item
	StaleRefused int    `json:"stale_refused"` // steps refused because of their fencing token
}

// Sale runs the flash sale with each strategy, one after the other, and writes the results.
func Sale(ctx context.Context, o Options) error {
	return demonstrate(ctx, o, func(d *demonstration) (any, string, error) {
		if !d.caps.Fencing {
			return nil, "", fmt.Errorf("demo: fencing tokens: %w", holdfast.ErrUnsupported)
		}
		var results []Result
		for i, s := range strategies {
			fmt.Fprintf(d.Progress, "%d of %d: %s\n", i+1, len(strategies), s.name)
			r, err := d.sale(ctx, s)
			if err != nil {
				return nil, "", err
			}
			results = append(results, r)
		}
		return results, saleTable(results), nil
	})
}

// sale runs a strategy once, with a new database and new processes, and counts what the database shows.
func (d *demonstration) sale(ctx context.Context, s strategy) (r Result, err error) {
	path := filepath.Join(d.dir, s.name+".db")
	db, err := openShop(path)
	if err != nil {
		return r, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, createShop, stock); err != nil {
		return r, fmt.Errorf("demo: %w", err)
	}
	f := newFleet(ctx)
	if err := f.wait(d.sell(f, path, s)); err != nil {
		return r, err
	}
	r = Result{Strategy: s.name, What: s.what, Stock: stock, StaleRefused: f.lines[retry]}
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&r.Sold)
	r.Oversold = max(0, r.Sold-stock)
	return r, err
}

// sell starts the services. If there is to be a pause, the first one begins alone, and is stopped when its
// first request has come to the payment, after the read. It goes on once another has sold: the lock, which
// nobody renewed, has passed to that one.
func (d *demonstration) sell(f *fleet, path string, s strategy) error {
	w := work{Sale: &service{Database: path, Fence: s.fence, PauseFirst: s.pause}}
	if s.locks {
		w.Store, w.Sale.Lock = d.Store, d.names+s.name
	}
	if s.pause {
		w.Sale.TTL = max(400*time.Millisecond, d.caps.MinTTL)
	}
	first, in, err := f.start(w)
	if err == nil && s.pause {
		err = errors.Join(f.await(atPayment), pause(first))
	}
	w.Sale.PauseFirst = false
	for i := 1; i < services && err == nil; i++ {
		_, _, err = f.start(w)
	}
	if err == nil && s.pause {
		err = errors.Join(f.await(sold), resume(first), in.Close())
	}
	return err
}

// saleTable returns the results as a table, with a sentence below that sums them up.
func saleTable(results []Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Flash sale: %d order services, %d users, one item each, %d in stock.\n\n", services, services*usersEach, stock)
	fmt.Fprintf(&b, "%-15s  stock  sold  oversold  refused\n", "strategy")
	for _, r := range results {
		fmt.Fprintf(&b, "%-15s  %5d  %4d  %8d  %7d\n  %s\n", r.Strategy, r.Stock, r.Sold, r.Oversold, r.StaleRefused, r.What)
	}
	b.WriteString("\nrefused: steps refused because their fencing token was stale.\n\n")
	fmt.Fprintf(&b, "%d items: %d orders without a lock, %d with it; %d with a pause, %d if tokens are checked.\n",
		stock, results[0].Sold, results[1].Sold, results[2].Sold, results[3].Sold)
	return b.String()
}

// A real shop would have CHECK (stock >= 0) as a last line of defence. Here it would hide the mistakes that
// are to be shown.
var createShop = fence.Schema(fence.SQLite) + `;
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
			if err := fence.AdmitTx(ctx, fence.SQLite, tx, "item", lease.Token(), lease.Mode()); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}
