package pgconn_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
	"github.com/holdfastlock/holdfast/txlock"
)

// A program that has a pool of pgx shares it. Let the pool have two connections or more: one of
// them is kept for renewals. Close the locks before the pool.
func ExampleFromPool() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // after the driver
	d, err := pgconn.FromPool(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // closes the driver

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		_, err := pool.Exec(ctx, "SELECT 1") // the work
		fmt.Println("charged under", lease.Name())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A row lock inside a transaction of pgx. RetryFunc runs it again after a deadlock.
func ExampleFromTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for _, text := range []string{
		txlock.Schema(txlock.Postgres), // this belongs among your migrations
		"CREATE TABLE account (id int PRIMARY KEY, balance int)", "INSERT INTO account VALUES (7, 100)",
	} {
		if _, err := pool.Exec(ctx, text); err != nil {
			log.Fatal(err)
		}
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return txlock.Create(ctx, txlock.Postgres, pgconn.FromTx(tx), "account/7")
	})
	if err != nil {
		log.Fatal(err)
	}
	err = optimistic.RetryFunc(ctx, nil, func() error { // again after a deadlock
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := txlock.Lock(ctx, txlock.Postgres, pgconn.FromTx(tx), "account/7"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE account SET balance = balance - 1 WHERE id = 7")
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	var balance int
	if err := pool.QueryRow(ctx, "SELECT balance FROM account WHERE id = 7").Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the balance is", balance)
}

func TestExamples(t *testing.T) {
	url := testserver.StartPostgres(t).URL("postgres")
	exampletest.Expect(t, url, "charged under orders/42", ExampleFromPool)
	exampletest.Expect(t, url, "the balance is 99", ExampleFromTx)
}
