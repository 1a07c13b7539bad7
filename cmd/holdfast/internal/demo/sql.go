package demo

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the client

	"github.com/holdfastlock/holdfast/fence"
)

// schema is the shop's. A real one would have UNIQUE (user) and CHECK (stock >=
// 0) as a last line of defence; here they would hide what is to be seen.
var schema = []string{
	"CREATE TABLE item (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)",
	"CREATE TABLE orders (id INTEGER PRIMARY KEY, user INTEGER NOT NULL)",
	"CREATE TABLE refusal (id INTEGER PRIMARY KEY, user INTEGER NOT NULL, reason TEXT NOT NULL)",
	"CREATE TABLE job (id INTEGER PRIMARY KEY, tick INTEGER NOT NULL, replica INTEGER NOT NULL)",
	fence.SQLite.Schema(),
}

const (
	insertItem = "INSERT INTO item (id, stock) VALUES (1, ?)"

	// What the services of most strategies do: read, and later write what was
	// computed from it.
	selectOffer = "SELECT stock, EXISTS (SELECT 1 FROM orders WHERE user = ?) FROM item WHERE id = 1"
	updateStock = "UPDATE item SET stock = ? WHERE id = 1"
	insertOrder = "INSERT INTO orders (user) VALUES (?)"

	// The database does it: the condition and the change are one statement.
	takeOne       = "UPDATE item SET stock = stock - 1 WHERE id = 1 AND stock > 0"
	insertIfFirst = "INSERT INTO orders (user) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM orders WHERE user = ?1)"

	insertRefusal = "INSERT INTO refusal (user, reason) VALUES (?, ?)"
	insertJob     = "INSERT INTO job (tick, replica) VALUES (?, ?)"

	selectCounts = "SELECT (SELECT stock FROM item WHERE id = 1)," +
		" (SELECT count(*) FROM orders)," +
		" (SELECT count(*) FROM (SELECT user FROM orders GROUP BY user HAVING count(*) > 1))," +
		" (SELECT count(*) FROM refusal)"
	selectTicks = "SELECT tick, count(*) FROM job GROUP BY tick"
)

// shop is the database, as one process uses it.
type shop struct{ *sql.DB }

// openShop opens the database file, with a pool of connections of its own.
// Readers and a writer work side by side (the write-ahead log), writers wait for
// each other (the busy timeout), and a transaction takes its turn as a writer
// when it begins.
//
// With a plain BEGIN, SQLite refuses to write in a transaction whose reads are
// out of date. Most databases, at their default isolation, do not, and here the
// reads are made before the transaction, as where the one is a method of a
// repository and the other of a unit of work.
func openShop(file string) (*shop, error) {
	file = filepath.ToSlash(file)
	if !strings.HasPrefix(file, "/") { // C:/…
		file = "/" + file
	}
	dsn := url.URL{Scheme: "file", Path: file, RawQuery: url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(wal)", "synchronous(normal)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	return &shop{db}, nil
}

// create makes the tables, and puts the stock on the shelf.
func (s *shop) create(ctx context.Context, stock int) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		for _, statement := range schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, insertItem, stock)
		return err
	})
}

// transact runs fn in a transaction, which an error of fn rolls back.
func (s *shop) transact(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// offer is what a service reads before it sells.
type offer struct {
	stock  int
	bought bool // the user has an order
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readOffer(ctx context.Context, q querier, user int) (o offer, err error) {
	err = q.QueryRowContext(ctx, selectOffer, user).Scan(&o.stock, &o.bought)
	return o, err
}

// writeOrder writes an order and the stock that is left after it.
func writeOrder(ctx context.Context, tx *sql.Tx, user, left int) error {
	if _, err := tx.ExecContext(ctx, updateStock, left); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, insertOrder, user)
	return err
}

// changes runs a statement and reports whether it changed a row.
func changes(ctx context.Context, tx *sql.Tx, query string, args ...any) (bool, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows > 0, err
}

// refused records that a write of a user's order was refused.
func (s *shop) refused(ctx context.Context, user int, reason error) error {
	_, err := s.ExecContext(ctx, insertRefusal, user, reason.Error())
	return err
}

// counts are what the database shows when a sale is over.
type counts struct{ left, sold, twice, refused int }

func (s *shop) counts(ctx context.Context) (c counts, err error) {
	err = s.QueryRowContext(ctx, selectCounts).Scan(&c.left, &c.sold, &c.twice, &c.refused)
	return c, err
}

// ran records a run of the job.
func (s *shop) ran(ctx context.Context, tick, replica int) error {
	_, err := s.ExecContext(ctx, insertJob, tick, replica)
	return err
}

// ticks returns how often the job ran, by tick.
func (s *shop) ticks(ctx context.Context) (map[int]int, error) {
	rows, err := s.QueryContext(ctx, selectTicks)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	runs := map[int]int{}
	for rows.Next() {
		var tick, n int
		if err := rows.Scan(&tick, &n); err != nil {
			return nil, err
		}
		runs[tick] = n
	}
	return runs, rows.Err()
}
