// Flashsale sells three items to twenty buyers, who come to two replicas of a service. The stock is a row of
// PostgreSQL, the lock is in Redis, and the database checks the lock's fencing token: a holder that stood still for
// longer than its lease cannot write beside the next one. It needs both servers. Type
//
//	export HOLDFAST_STORE=redis://localhost:6379
//	export DATABASE_URL=postgres://postgres@localhost:5432/postgres
//	go run ./flashsale
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/optimistic"
	_ "github.com/holdfastlock/holdfast/redislock"
)

const (
	item   = "examples/anvil" // the name of the lock, and of the resource
	schema = `
		CREATE TABLE IF NOT EXISTS holdfast_example_stock (item text PRIMARY KEY, amount int NOT NULL);
		INSERT INTO holdfast_example_stock VALUES ('anvil', 3) ON CONFLICT (item) DO UPDATE SET amount = 3`
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("pgx", cmp.Or(os.Getenv("DATABASE_URL"), "postgres://postgres@localhost:5432/postgres"))
	if err == nil {
		_, err = db.ExecContext(ctx, fence.Schema(fence.Postgres)+";"+schema) // these belong among your migrations
	}
	if err != nil {
		log.Fatalf("PostgreSQL, which DATABASE_URL names: %v", err)
	}
	defer db.Close()

	results := make(chan error)
	for range 2 {
		locks, err := holdfast.OpenWith(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "redis://localhost:6379"), &holdfast.ClientOptions{
			Events: holdfast.Events{Waiting: func(e holdfast.Event) { fmt.Println("a buyer waits:", e.Err) }},
		})
		if err != nil {
			log.Fatalf("Redis, which HOLDFAST_STORE names: %v", err)
		}
		defer locks.Close()
		for range 10 {
			go func() { results <- sell(ctx, db, locks) }()
		}
	}
	for range 20 {
		if answer := <-results; answer != nil {
			err = answer
		}
	}
	if err != nil {
		log.Fatal(err) // now that nobody holds the lock
	}
	fmt.Println("all buyers have been answered")
}

// sell reads the stock, takes the payment, and writes the stock. Nothing but the lock keeps two buyers apart.
func sell(ctx context.Context, db *sql.DB, locks *holdfast.Client) error {
	return locks.Mutex(item, nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		var left int
		err := guarded(ctx, db, lease, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT amount FROM holdfast_example_stock").Scan(&left)
		})
		if err != nil || left == 0 {
			return err
		}
		fmt.Printf("sells one of %d, with token %d\n", left, lease.Token())
		time.Sleep(5 * time.Millisecond) // the payment
		return guarded(ctx, db, lease, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE holdfast_example_stock SET amount = $1", left-1)
			return err
		})
	})
}

// guarded runs fn in a transaction. Its first statement admits the lock's token, or refuses it (fence.ErrStale) if a
// later holder has been here. Transactions that read are guarded too.
func guarded(ctx context.Context, db *sql.DB, lease *holdfast.Lease, fn func(*sql.Tx) error) error {
	return optimistic.Retry(ctx, db, nil, func(tx *sql.Tx) error {
		if err := fence.AdmitTx(ctx, fence.Postgres, tx, item, lease.Token(), lease.Mode()); err != nil {
			return err
		}
		return fn(tx)
	})
}
