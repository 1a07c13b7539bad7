package pgconn

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// operations is the length of each of two random histories; those of two more, in
// which faults are injected, are half as long.
var operations = testserver.Long(200, 7_000)

func TestConformance(t *testing.T) {
	server := shared(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, server, nil) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return dialURL(t, strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1), nil), proxy
		},
		Restart:    testserver.Long(nil, func(testing.TB) { server.Kill(); server.Start() }),
		Operations: operations,
		Untimed:    !testserver.Soak,
		Parallel:   testserver.Long(8, 2), // the cases with a bound on time are not to wait for the random histories
		// The server that was started last ends after the run.
		Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch")},
	})
}

// dial returns a driver with a pool of its own, which change may change.
func dial(t testing.TB, server *testserver.Postgres, change func(*sql.DB)) driver.Driver {
	t.Helper()
	return dialURL(t, server.URL("postgres"), change)
}

// dialURL is dial of a database's URL.
func dialURL(t testing.TB, url string, change func(*sql.DB)) driver.Driver {
	t.Helper()
	db, err := sql.Open("pgx", url)
	must(t, err)
	db.SetMaxIdleConns(4) // database/sql keeps two, and making them again costs much
	if change != nil {
		change(db)
	}
	library := libraryFor(asPool(db))
	library.Close = db.Close
	d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{MaxTTL: time.Hour})
	if err != nil {
		t.Fatalf("sqllock.New: %v", err)
	}
	return d
}
