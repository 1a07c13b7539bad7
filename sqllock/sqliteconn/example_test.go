package sqliteconn_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

// The file is made if it is missing. Its directory must exist.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "locks-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	locks, err := holdfast.Open(ctx, "sqlite://"+dir+"/locks.db")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Println("charging under", lease.Name()) // ctx ends when the lock is no longer trusted
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: charging under orders/42
}

// A program that has a pool already shares it. DSN has the settings that suit locks.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "locks-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqliteconn.DSN(filepath.Join(dir, "locks.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after the driver
	d, err := sqliteconn.New(ctx, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lease.Name())
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	// Output: held: orders/42
}
