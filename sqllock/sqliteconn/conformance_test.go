package sqliteconn

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// operations is the length of each of two random histories; those of two more, in
// which faults are injected, are half as long.
var operations = testserver.Long(200, 7_000)

func TestConformance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	drivertest.Run(t, drivertest.Harness{
		Open:        func(t testing.TB) driver.Driver { return dial(t, file, nil) },
		NoTransport: true,
		Operations:  operations,
		Untimed:     !testserver.Soak,
		Parallel:    4,
	})
}

// dial returns a driver with a pool of its own, which change may change.
func dial(t testing.TB, file string, change func(*sql.DB)) driver.Driver {
	t.Helper()
	db, err := sql.Open("sqlite", DSN(file)+"&_pragma=synchronous(OFF)") // outlives the process, not the host
	must(t, err)
	if change != nil {
		change(db)
	}
	d, err := sqllock.New(t.Context(), db, sqllock.SQLite, sqllock.Library{Failure: failure, Close: db.Close}, nil)
	if err != nil {
		t.Fatalf("sqllock.New: %v", err)
	}
	return d
}
