//go:build soak

package etcdlock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestConformanceOfStock is the same in the layout of etcd's own locks. There the
// value of an exclusive hold is nothing but its note, so only the client that put a
// key knows its owner: others see the key's end instead.
func TestConformanceOfStock(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), &Options{Layout: Stock}) },
		Transport: through(server, Stock),
		TTL:       time.Second,
		Parallel:  8,
		Except: []string{
			"inspect/shows the holder", "inspect/shows waiters in order", "names/awkward names are shown as they are",
			"tokens/of a block are nobody else's",
		},
		Leaks: leaks,
	})
}

// TestConformanceOfThree is the same on three members, of which one after the
// other is killed where the suite restarts the store.
func TestConformanceOfThree(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3, Election: quick})
	next := 0
	drivertest.Run(t, drivertest.Harness{
		Open:      func(t testing.TB) driver.Driver { return dial(t, server.Addrs(), nil) },
		Transport: through(server, Escaped),
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
