// Tx moves money between two accounts in PostgreSQL, both ways at the same time. A transaction locks the accounts'
// names by package txlock, and its commit or rollback frees them: there is no lease, no TTL and no other store. It
// needs PostgreSQL. Type
//
//	export DATABASE_URL=postgres://postgres@localhost:5432/postgres
//	go run ./tx
package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

const (
	schema = `
		CREATE TABLE IF NOT EXISTS holdfast_example_account (id text PRIMARY KEY, balance int NOT NULL);
		INSERT INTO holdfast_example_account VALUES ('ada', 100), ('grace', 100)
		ON CONFLICT (id) DO UPDATE SET balance = 100`
	read  = "SELECT balance FROM holdfast_example_account WHERE id = $1"
	write = "UPDATE holdfast_example_account SET balance = $2 WHERE id = $1"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("pgx", cmp.Or(os.Getenv("DATABASE_URL"), "postgres://postgres@localhost:5432/postgres"))
	if err == nil {
		_, err = db.ExecContext(ctx, txlock.Schema(txlock.Postgres)+";"+schema) // these belong among your migrations
	}
	if err == nil { // a name is created together with what it stands for
		err = txlock.Create(ctx, txlock.Postgres, db, "accounts/ada", "accounts/grace")
	}
	if err != nil {
		log.Fatalf("PostgreSQL, which DATABASE_URL names: %v", err)
	}
	defer db.Close()

	results := make(chan error)
	for range 20 {
		go func() { results <- move(ctx, db, "ada", "grace", 3) }()
		go func() { results <- move(ctx, db, "grace", "ada", 2) }()
	}
	for range 40 {
		if err := <-results; err != nil {
			log.Fatal(err)
		}
	}
	var sum int
	if err := db.QueryRowContext(ctx, "SELECT sum(balance) FROM holdfast_example_account").Scan(&sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after 40 moves Ada and Grace together have", sum)
}

// move reads both balances and writes them. Retry runs the transaction again after a conflict of the database.
func move(ctx context.Context, db *sql.DB, from, to string, amount int) error {
	return optimistic.Retry(ctx, db, nil, func(tx *sql.Tx) error {
		// Both names in one call: two moves in opposite directions cannot wait for each other.
		if err := txlock.Lock(ctx, txlock.Postgres, tx, "accounts/"+from, "accounts/"+to); err != nil {
			return err
		}
		for id, change := range map[string]int{from: -amount, to: amount} {
			var balance int
			if err := tx.QueryRowContext(ctx, read, id).Scan(&balance); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, write, id, balance+change); err != nil {
				return err
			}
		}
		return nil
	})
}
