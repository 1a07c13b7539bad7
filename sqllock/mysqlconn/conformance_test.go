package mysqlconn

import (
	"database/sql"
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
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		drivertest.Run(t, drivertest.Harness{
			Open: func(t testing.TB) driver.Driver { return dial(t, server, nil) },
			Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
				proxy := chaos.StartProxy(t, server.Addr)
				return dialAddr(t, proxy.Addr, nil), proxy
			},
			Restart:    testserver.Long(nil, func(testing.TB) { server.Kill(); server.Start() }),
			Operations: operations,
			Untimed:    !testserver.Soak,
			Parallel:   testserver.Long(8, 4), // a case gives an acquire 30 ms to hear that a name is held
			// The server that was started last ends after the run.
			Leaks: []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/test/testserver.(*process).watch")},
		})
	})
}

// dial returns a driver with a pool of its own, which change may change.
func dial(t testing.TB, server *testserver.MySQL, change func(*sql.DB)) driver.Driver {
	t.Helper()
	return dialAddr(t, server.Addr, change)
}

// dialAddr is dial of an address.
func dialAddr(t testing.TB, addr string, change func(*sql.DB)) driver.Driver {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+addr+")/test?interpolateParams=true&multiStatements=true")
	must(t, err)
	db.SetMaxIdleConns(4) // database/sql keeps two, and making them again costs much
	if change != nil {
		change(db)
	}
	own := library
	own.Close = func() error { db.Close(); return nil }
	d, err := sqllock.New(t.Context(), db, sqllock.MySQL, own, &sqllock.Options{MaxTTL: time.Hour})
	if err != nil {
		t.Fatalf("sqllock.New: %v", err)
	}
	return d
}
