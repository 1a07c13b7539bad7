//go:build soak

package drivertest_test

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/memlock"
)

func TestConformanceInRealTime(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: poll, TokenBlock: 16})
	drivertest.Run(t, drivertest.Harness{
		Open:        func(testing.TB) driver.Driver { return store.Client() },
		NoTransport: true,
	})
}
