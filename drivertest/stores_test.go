package drivertest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/memlock"
)

// poll is short, so that stores drop dead waiters soon, and longer than a loaded machine stands still.
const poll = 400 * time.Millisecond

func TestConformance(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: poll})
	drivertest.Run(t, drivertest.Harness{
		Open:        func(testing.TB) driver.Driver { return store.Client() },
		Advance:     func(_ testing.TB, d time.Duration) { store.Advance(d) },
		NoTransport: true,
		Untimed:     !testserver.Soak,
	})
}

// TestConformanceThroughFaults: late and repeated messages break nothing, in real time.
func TestConformanceThroughFaults(t *testing.T) {
	store := memlock.NewStore(&memlock.Options{Poll: poll, TokenBlock: 16})
	var clients atomic.Uint64
	open := func(testing.TB) *chaos.Driver {
		return chaos.New(store.Client(), chaos.Options{
			Seed: clients.Add(1), Delay: 0.1, HoldReply: 0.1, Duplicate: 0.2, MaxDelay: 2 * time.Millisecond,
		})
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return open(t) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			d := open(t)
			return d, drivertest.InProcess(d)
		},
		Operations: testserver.Long(200, 600),
		Untimed:    !testserver.Soak,
	})
}

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

// TestFallbackConformance: while the first store answers, a driver over two stores is a driver like any other.
func TestFallbackConformance(t *testing.T) {
	first := memlock.NewStore(&memlock.Options{Poll: poll})
	second := memlock.NewStore(&memlock.Options{Poll: poll})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver {
			d, err := fallback.New(first.Client(), second.Client(), nil)
			testserver.Must(t, err)
			return d
		},
		Advance:     func(_ testing.TB, d time.Duration) { first.Advance(d); second.Advance(d) },
		NoTransport: true,
		Operations:  testserver.Long(200, 2000),
		Untimed:     !testserver.Soak,
	})
}
