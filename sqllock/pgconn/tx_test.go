package pgconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/txlock"
)

// TestFromTx uses txlock in transactions of pgx, and what a row is scanned as.
func TestFromTx(t *testing.T) {
	server := shared(t)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), server.URL("postgres")+"&default_query_exec_mode="+mode)
			must(t, err)
			already := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, already) })
			t.Cleanup(pool.Close) // after the transactions of begin
			c := &txCases{t, pool}
			for _, text := range []string{
				"DROP TABLE IF EXISTS item, holdfast_txlock", txlock.Schema(txlock.Postgres),
				"CREATE TABLE item (id int PRIMARY KEY, version bigint NOT NULL, stock int NOT NULL)",
			} {
				if _, err := pool.Exec(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			c.locks()
			c.values()
			c.failures()
		})
	}
}

type txCases struct {
	*testing.T
	pool *pgxpool.Pool
}

// begin begins a transaction that is rolled back with the test.
func (c *txCases) begin() Tx {
	c.Helper()
	tx, err := c.pool.Begin(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { tx.Rollback(context.Background()) })
	return FromTx(tx)
}

func (c *txCases) must(errs ...error) {
	c.Helper()
	if err := errors.Join(errs...); err != nil {
		c.Fatal(err)
	}
}

func (c *txCases) locks() {
	ctx := c.Context()
	first, second := c.begin(), c.begin()
	c.must(txlock.Create(ctx, txlock.Postgres, first, "a", "b"), first.Commit(ctx))
	first = c.begin()
	c.must(txlock.Lock(ctx, txlock.Postgres, first, "a"))
	if err := txlock.TryLock(ctx, txlock.Postgres, second, "a"); !errors.Is(err, txlock.ErrHeld) {
		c.Errorf("a name that another transaction has: %v", err)
	}
	if err := txlock.Lock(ctx, txlock.Postgres, second, "unknown"); !errors.Is(err, txlock.ErrUnknown) {
		c.Errorf("a name without a row: %v", err)
	}
	c.must(first.Commit(ctx), txlock.TryLock(ctx, txlock.Postgres, second, "a"), second.Rollback(ctx))
}

// values: a row is scanned as one of database/sql.
func (c *txCases) values() {
	ctx := c.Context()
	tx := c.begin()
	var (
		yes          bool
		small, large int64
		half         float64
		bytes        []byte
		at           time.Time
		text, json   string
		none         sql.NullString
		numeric      float64
		forever      any
	)
	if err := tx.QueryRowContext(ctx, `SELECT true, 7::smallint, 9007199254740993::bigint, 0.5::float8, '\x00ff'::bytea,
 '2026-01-02 03:04:05.000006+00'::timestamptz, 'ä"', '{"a": 1}'::jsonb, NULL, 1.5::numeric, 'infinity'::timestamptz
 UNION ALL SELECT false, 0, 0, 0, '', now(), '', '{}', '', 0, now() ORDER BY 1 DESC`).
		Scan(&yes, &small, &large, &half, &bytes, &at, &text, &json, &none, &numeric, &forever); err != nil {
		c.Fatal(err)
	}
	got := fmt.Sprint(yes, small, large, half, bytes, at.UnixMicro(), text, json, none.Valid, numeric, forever)
	if want := `true 7 9007199254740993 0.5 [0 255] 1767323045000006 ä"{"a": 1}false 1.5 infinity`; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		c.Errorf("the row is %s\nwant %s", got, want)
	}
	tx.QueryRowContext(ctx, "SELECT generate_series(1, 1000)") // not scanned: the transaction goes on
	result, err := tx.ExecContext(ctx, "INSERT INTO item SELECT n, 1, 0 FROM generate_series(100, 102) n")
	if err != nil {
		c.Fatal(err)
	}
	if n, err := result.RowsAffected(); n != 3 || err != nil {
		c.Errorf("%d rows were inserted (%v), not 3", n, err)
	}
	c.must(tx.Rollback(ctx))
}

// failures: errors are those of pgx, and a transaction that has ended locks nothing.
func (c *txCases) failures() {
	ctx := c.Context()
	tx := c.begin()
	var n int
	err := tx.QueryRowContext(ctx, "SELECT 1 / (random()::int * 0)").Scan(&n)
	var theirs interface{ SQLState() string }
	if !errors.As(err, &theirs) || theirs.SQLState() != "22012" {
		c.Errorf("a division by zero: %v", err)
	}
	c.must(tx.Rollback(ctx))
	if err := tx.QueryRowContext(ctx, "SELECT 1").Scan(&n); !errors.Is(err, pgx.ErrTxClosed) {
		c.Errorf("a query after the rollback: %v", err)
	}
	for what, err := range map[string]error{
		"Lock":    txlock.Lock(ctx, txlock.Postgres, tx, "a"),
		"TryLock": txlock.TryLock(ctx, txlock.Postgres, tx, "a"),
		"Admit":   fence.AdmitTx(ctx, fence.Postgres, tx, "stock", 100, driver.Exclusive),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			c.Errorf("%s after the rollback: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.begin().QueryRowContext(ended, "SELECT 1").Scan(&n); !errors.Is(err, context.Canceled) {
		c.Errorf("a query whose context has ended: %v", err)
	}
}
