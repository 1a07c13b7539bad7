package drivertest_test

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

func TestFilelockConformance(t *testing.T) {
	dir := t.TempDir()
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := filelock.Open(t.Context(), filelock.Options{Dir: dir})
			if err != nil {
				t.Fatalf("filelock.Open: %v", err)
			}
			return d
		},
		NoTransport: true,
		Operations:  testserver.Long(300, 2000),
		Untimed:     !testserver.Soak,
	})
}
