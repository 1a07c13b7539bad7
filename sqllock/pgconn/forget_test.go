//go:build soak

package pgconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/forgettest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: an asynchronous standby that lacks the last commits is promoted after the primary was killed.
func TestForgets(t *testing.T) {
	forgettest.Run(t, "a standby is promoted", func(t *testing.T) forgettest.Store {
		cluster := testserver.StartPostgresCluster(t, "")
		primary, standby, other := cluster.Primary, cluster.Standbys[0], cluster.Standbys[1]
		// Clients know all hosts, and go to the one that takes writes.
		return forgettest.Store{
			Before: cluster.URL("postgres"), After: cluster.URL("postgres"),
			Lag: func() { cluster.CatchUp(); standby.Stop(); other.Kill() },
			Forget: func() {
				primary.Kill()
				standby.Start()
				standby.Query("SELECT pg_promote()")
			},
		}
	})
}
