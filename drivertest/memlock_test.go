package drivertest_test

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/memlock"
)

// poll is short, so that dead waiters are waited for quickly, and long beside
// the pauses of a loaded machine.
const poll = 400 * time.Millisecond

func TestConformance(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: poll})
	drivertest.Run(t, drivertest.Harness{
		Open:    func(testing.TB) driver.Driver { return store.Client() },
		Advance: func(_ testing.TB, d time.Duration) { store.Advance(d) },
	})
}

func TestConformanceInRealTime(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: poll})
	drivertest.Run(t, drivertest.Harness{
		Open: func(testing.TB) driver.Driver { return store.Client() },
	})
}
