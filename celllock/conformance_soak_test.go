//go:build soak

package celllock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestConformanceOfThree is the same on three members, of which one after the other is killed where the
// suite restarts the store.
func TestConformanceOfThree(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: quick})
	next := 0
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, server.Addrs()) },
		Transport: through(server),
		Restart: func(testing.TB) {
			server.Members[next%3].Kill()
			server.Members[next%3].Start()
			next++
		},
		TTL:      time.Second,
		Parallel: 8,
		Leaks:    leaks,
	})
}
