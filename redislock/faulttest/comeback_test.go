//go:build soak

package faulttest

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestClusterComeback: a client is opened right after a master has been started again, when it serves nobody for
// two seconds. It is the one that has the store's name, which every client reads first.
func TestClusterComeback(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	back := servers.Master("holdfast:store")
	back.Kill()
	back.Start()
	c := openURL(t, clusterURL(servers))
	for _, m := range servers.Servers {
		if err := acquire(t, c, servers.KeyOf(m), nil).Release(); err != nil {
			t.Error(err)
		}
	}
}
