//go:build soak

package fencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// The guard is the first statement of the transaction that does the work.
func Example() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "orders.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	ctx := context.Background()
	for _, ddl := range []string{fence.SQLite.Schema(), "CREATE TABLE stock (item TEXT PRIMARY KEY, n INTEGER)", "INSERT INTO stock VALUES ('apple', 3)"} {
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			fmt.Println(err)
			return
		}
	}

	sell := func(token driver.Token) error { // the token is lease.Token()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.SQLite.Admit(ctx, tx, "stock/apple", token, driver.Exclusive); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE item = 'apple'"); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(sell(7))
	err = sell(6)
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	// Output:
	// <nil>
	// true stale fencing token: exclusive token 6 of "stock/apple" is below 7, which has used the resource since
}
