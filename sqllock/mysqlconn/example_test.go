package mysqlconn_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/url"
	"os"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
)

// The URL of a store may have a password, so it comes from the environment:
// mysql://app:secret@db.example.org/app?tls=true
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"))
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
}

// A program that has a pool already shares it. The pool must have two connections or more.
func ExampleNew() {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%v@tcp(%s)%s", u.User, u.Host, u.Path))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after the driver
	d, err := mysqlconn.New(ctx, db, nil)
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
}

func TestExamples(t *testing.T) {
	url := testserver.StartMariaDB(t).URL()
	exampletest.Expect(t, url, "charging under orders/42", Example)
	exampletest.Expect(t, url, "held: orders/42", ExampleNew)
}
