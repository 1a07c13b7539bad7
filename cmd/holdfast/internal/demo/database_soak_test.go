//go:build soak

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"  // mysql://
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"     // postgres://
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn" // sqlite://
)

// The parameter hf.tables is for the driver, and must not reach the client library.
func TestPostgres(t *testing.T) {
	onDatabase(t, testserver.StartPostgres(t).URL("postgres")+"&hf.tables=demo", "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'")
}

func TestMariaDB(t *testing.T) {
	onDatabase(t, testserver.StartMariaDB(t).URL()+"?hf.tables=demo", "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'holdfast%'")
}

func TestMySQL(t *testing.T) {
	onDatabase(t, testserver.StartMySQL(t).URL()+"?hf.tables=demo", "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'holdfast%'")
}

// TestSQLiteLocks keeps the locks in a file of SQLite; the shop has its own.
func TestSQLiteLocks(t *testing.T) {
	dir := ownTempDir(t)
	var out bytes.Buffer
	store := "sqlite://" + t.TempDir() + "/locks.db"
	if err := Run(t.Context(), Options{Store: store, JSON: true, Out: &out, Repeats: 1, Users: 20, Strategies: []string{"lock", "paused-fenced"}}); err != nil {
		t.Fatal(err)
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Runs != 1 || r.Oversold != 0 || r.UserViolations != 0 || r.Sold != r.Stock {
			t.Errorf("%+v", r)
		}
	}
	expectNothingLeft(t, dir)
}

// onDatabase runs the sale with locks and shop in one database. Afterwards nothing of the shop is
// left there, even if the demonstration was ended in the middle.
func onDatabase(t *testing.T, store, schemas string) {
	dir, servers := ownTempDir(t), children(t)
	expectRight(t, store)
	expectWrong(t, store)

	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(700*time.Millisecond, func() { cancel(cause) })
	defer timer.Stop()
	if err := Run(ctx, Options{Store: store, Strategies: []string{"for-update", "lock"}, Repeats: 1000, Within: time.Hour}); !errors.Is(err, cause) {
		t.Errorf("the error is %v, want %v", err, cause)
	}

	plain, _, _ := strings.Cut(store, "hf.")
	shop, err := openShop(strings.TrimRight(plain, "?&"))
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close()
	rows, err := shop.QueryContext(t.Context(), schemas)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s is left", name)
	}
	expectNothingLeft(t, dir, servers...)
}
