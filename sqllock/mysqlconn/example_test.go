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
	exampletest.Expect(t, url, "held: orders/42", ExampleNew)
}
