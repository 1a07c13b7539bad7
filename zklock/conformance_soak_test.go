//go:build soak

package zklock

import (
	"testing"

	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// beyond are the cases that need sessions as long as the longest hold of the suite.
var beyond = []string{
	"exclusive/a grant arrives with time to work",
	"transport/a late reply to a try counts from its request",
	"transport/a late reply of the queue counts from its request",
	"transport/a late reply that hands over counts from its request",
}

// TestConformanceOfThree has three servers, of which one after the other is killed where the suite restarts the store, and
// sessions of four seconds at most, which is less than most TTLs of the suite.
func TestConformanceOfThree(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: quick})
	h, next := harness(server), 0
	h.Restart = func(testing.TB) {
		server.Members[next%3].Kill()
		server.Members[next%3].Start()
		next++
	}
	h.Except = append(h.Except, beyond...)
	drivertest.Run(t, h)
}
