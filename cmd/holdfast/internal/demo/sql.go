package demo

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

// dialect is what the databases write differently.
type dialect struct {
	fence   fence.Dialect
	locks   txlock.Dialect
	version optimistic.Dialect
	id      string // the definition of a column that numbers the rows
	ignored string // an INSERT that does nothing if the row exists already, with %s for the rest
}

var (
	postgres = dialect{fence.Postgres, txlock.Postgres, optimistic.Postgres,
		"id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "INSERT INTO %s ON CONFLICT DO NOTHING"}
	mySQL = dialect{fence.MySQL, txlock.MySQL, optimistic.MySQL,
		"id BIGINT AUTO_INCREMENT PRIMARY KEY", "INSERT IGNORE INTO %s"}
	sqlite = dialect{fence.SQLite, txlock.SQLite, optimistic.SQLite,
		"id INTEGER PRIMARY KEY", "INSERT INTO %s ON CONFLICT DO NOTHING"}
)

// schema returns the statements that create the shop's tables. A real shop would have UNIQUE
// (buyer) and CHECK (stock >= 0) as a last line of defence; here they would hide the mistakes that
// are to be shown. One strategy relies on unique columns alone: it sells rows of the table seat.
func (d dialect) schema() []string {
	return []string{
		"CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, stock INTEGER NOT NULL," +
			" version BIGINT NOT NULL DEFAULT 0)",
		"CREATE TABLE orders (" + d.id + ", buyer INTEGER NOT NULL)",
		"CREATE TABLE seat (seat INTEGER NOT NULL PRIMARY KEY, buyer INTEGER NOT NULL UNIQUE)",
		"CREATE TABLE refusal (" + d.id + ", buyer INTEGER NOT NULL, reason TEXT NOT NULL)",
		"CREATE TABLE job (" + d.id + ", tick INTEGER NOT NULL, replica INTEGER NOT NULL)",
		d.fence.Schema(),
		d.locks.Schema(),
	}
}

// itemName is the item's name in the table of package txlock.
const itemName = "item/1"

const (
	insertItem = "INSERT INTO item (id, stock) VALUES (1, ?)"

	// What the services of most strategies do: read, and later write what was computed from it.
	selectOffer = "SELECT stock, EXISTS (SELECT 1 FROM orders WHERE buyer = ?)" +
		" FROM item WHERE id = 1"
	updateStock  = "UPDATE item SET stock = ? WHERE id = 1"
	insertOrder  = "INSERT INTO orders (buyer) VALUES (?)"
	selectBought = "SELECT EXISTS (SELECT 1 FROM orders WHERE buyer = ?)"

	// The condition and the change are one statement.
	takeOne = "UPDATE item SET stock = stock - 1 WHERE id = 1 AND stock > 0"
	// The change is one statement; the condition is checked afterwards.
	decrement = "UPDATE item SET stock = stock - 1 WHERE id = 1"
	// The rest of dialect.ignored: whoever inserts the row has the seat.
	seatRow = "seat (seat, buyer) VALUES (?, ?)"

	insertRefusal = "INSERT INTO refusal (buyer, reason) VALUES (?, ?)"
	insertJob     = "INSERT INTO job (tick, replica) VALUES (?, ?)"

	selectCounts = "SELECT (SELECT stock FROM item WHERE id = 1)," +
		" (SELECT count(*) FROM orders)," +
		" (SELECT count(*) FROM" +
		" (SELECT buyer FROM orders GROUP BY buyer HAVING count(*) > 1) AS several)," +
		" (SELECT count(*) FROM refusal)"
	selectTicks = "SELECT tick, count(*) FROM job GROUP BY tick"
)

// shop is the database, as one process uses it.
type shop struct {
	*sql.DB
	dialect
	url string
}

// sql returns a query with the placeholders that the database understands.
func (s *shop) sql(query string) string {
	if s.fence != fence.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// create creates the tables, and the item with its stock.
func (s *shop) create(ctx context.Context, stock int) error {
	for _, statement := range s.schema() {
		if _, err := s.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := s.locks.Create(ctx, s, itemName); err != nil {
		return err
	}
	_, err := s.ExecContext(ctx, s.sql(insertItem), stock)
	return err
}

// transact runs fn in a transaction, which an error of fn rolls back. If the database aborts it
// because of a conflict with another, it is run again.
func (s *shop) transact(ctx context.Context, fn func(*sql.Tx) error) error {
	return optimistic.Retry(ctx, s.DB, nil, fn)
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

func (s *shop) offer(ctx context.Context, q querier, user int) (o offer, err error) {
	err = q.QueryRowContext(ctx, s.sql(selectOffer), user).Scan(&o.stock, &o.bought)
	return o, err
}

func (s *shop) bought(ctx context.Context, q querier, user int) (bought bool, err error) {
	err = q.QueryRowContext(ctx, s.sql(selectBought), user).Scan(&bought)
	return bought, err
}

// writeOrder writes an order and the stock that is left after it.
func (s *shop) writeOrder(ctx context.Context, tx *sql.Tx, user, left int) error {
	if _, err := s.changes(ctx, tx, updateStock, left); err != nil {
		return err
	}
	_, err := s.changes(ctx, tx, insertOrder, user)
	return err
}

// changes runs a statement and reports whether it changed a row.
func (s *shop) changes(ctx context.Context, tx *sql.Tx, query string, args ...any) (bool, error) {
	result, err := tx.ExecContext(ctx, s.sql(query), args...)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows > 0, err
}

// items is the item's table, for writing it under the condition that its version is unchanged.
func (s *shop) items() optimistic.Table {
	return optimistic.Table{Dialect: s.version, Name: "item", Key: "id", Columns: []string{"stock"}}
}

// recordRefusal records that a write of a user's order was refused.
func (s *shop) recordRefusal(ctx context.Context, user int, reason error) error {
	_, err := s.ExecContext(ctx, s.sql(insertRefusal), user, reason.Error())
	return err
}

// counts are what the database shows when a sale is over.
type counts struct{ left, sold, twice, refused int }

func (s *shop) counts(ctx context.Context) (c counts, err error) {
	err = s.QueryRowContext(ctx, selectCounts).Scan(&c.left, &c.sold, &c.twice, &c.refused)
	return c, err
}

// recordRun records a run of the job.
func (s *shop) recordRun(ctx context.Context, tick, replica int) error {
	_, err := s.ExecContext(ctx, s.sql(insertJob), tick, replica)
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
