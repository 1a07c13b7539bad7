package drivertest_test

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/filelock"
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
	})
}
