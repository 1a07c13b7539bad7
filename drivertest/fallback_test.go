//go:build soak

package drivertest_test

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/memlock"
)

// TestFallbackConformance: while the first store answers, a driver over two stores is a driver like
// any other.
func TestFallbackConformance(t *testing.T) {
	first := memlock.NewStore(&memlock.Options{Poll: poll})
	second := memlock.NewStore(&memlock.Options{Poll: poll})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return over(t, first.Client(), second.Client()) },
		Advance: func(_ testing.TB, d time.Duration) {
			first.Advance(d)
			second.Advance(d)
		},
		NoTransport: true,
	})
}

// over returns a driver over two stores, or over one if the second is nil.
func over(t testing.TB, first, second driver.Driver) driver.Driver {
	t.Helper()
	d, err := fallback.New(first, second, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
