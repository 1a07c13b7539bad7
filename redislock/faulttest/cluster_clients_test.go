//go:build soak

package faulttest

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestClusterCrowd: of three masters with a replica each one is killed, another is stopped, and of the third
// an operator promotes the replica by hand, while 200 clients, each with connections of its own, hold and
// wait for names of all three. All follow, nobody is stuck, and nobody trusts a lease after its deadline, or
// one that the new master does not have. Half of the clients want each grant acknowledged by the replica:
// their leases are not lost, do not overlap, and have growing tokens. For that the old master has to come
// back: until then the one that has taken over has no replica. To the others a master that goes on
// after a while, or that has not heard of the promotion yet, may grant beside the new one.
func TestClusterCrowd(t *testing.T) {
	testserver.TakeTurn(t)
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
	for _, r := range servers.Servers[:3] {
		r.AwaitReplicas(1)
	}
	groups := startGroups(t, clusterURL(servers))
	for i, f := range []struct {
		name   string
		beside bool // the old master grants beside the new one for a while, to those who do not ask for replicas
		end    func(master, replica *testserver.Redis)
		back   func(master *testserver.Redis)
	}{
		{"killed", false, func(m, _ *testserver.Redis) { m.Kill() }, (*testserver.Redis).Start},
		{"stopped", true, func(m, _ *testserver.Redis) { m.Pause() }, (*testserver.Redis).Resume},
		{"promoted by hand", true, func(_, r *testserver.Redis) { r.Ask("CLUSTER", "FAILOVER", "TAKEOVER") }, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, g := range groups {
				g.TB = t
				g.tell("served")
			}
			// Opened before: a server that comes back says for a moment that the cluster is down.
			witness := openURL(t, clusterURL(servers))
			before := servers.Servers[i]
			f.end(before, servers.Servers[3+i])
			servers.AwaitMaster(nameAt(i, "any"), before)
			began := time.Now()
			if f.back != nil {
				f.back(before)
			}
			for _, g := range groups {
				served := g.tell("served").Took
				lost := g.settled(witness)
				g.tell("served")
				overlaps, shortLost := g.judge(f.beside && !g.replicated())
				t.Logf("%s: all were served twice within %v, %v after the take-over; of 100 leases %d were lost, and of short ones %d; %d overlaps",
					g.name, served.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), lost, shortLost, overlaps)
			}
		})
	}
	for _, g := range groups {
		g.TB = t
		g.tell("end")
	}
}
