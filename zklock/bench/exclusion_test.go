//go:build soak

package bench

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestBurst: the clients of a burst exclude each other, and all that is counted was
// held.
func TestBurst(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	for name, open := range map[string]opener{"holdfast": ours(t, server.Addrs()), "go-zookeeper": stock(t, server.Addrs())} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var holds []faults.Hold
			shares := burst(t, workload{8, 1, "/" + name, 500 * time.Millisecond}, open, func() {
				h := faults.Hold{Name: name, From: driver.HostClock.Now()}
				time.Sleep(100 * time.Microsecond)
				h.Until = driver.HostClock.Now()
				mu.Lock()
				defer mu.Unlock()
				holds = append(holds, h)
			}).shares
			for _, found := range faults.Overlaps(holds) {
				t.Error(found)
			}
			counted := 0
			for _, n := range shares {
				counted += n
			}
			// Each client has had a pair before the time began, and ended one after it.
			if want := len(holds) - 2*len(shares); counted != want {
				t.Errorf("%d pairs are counted, not %d", counted, want)
			}
		})
	}
}
