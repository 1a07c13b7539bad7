//go:build soak

package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestPromotedByHand: an operator promotes the replica, without sentinels, and lets the address that
// clients know lead there, while 200 clients hold and wait. Their connections to the old primary stay
// open, and nobody has told it. It grants nothing to those who want replicas to acknowledge; without,
// there are two believers, of which a guard stops the first. Then the operator makes the old primary a
// replica: all clients leave it, and nobody is stuck.
func TestPromotedByHand(t *testing.T) {
	before := testserver.StartRedis(t, testserver.RedisOptions{})
	now := testserver.StartRedisReplicas(t, before, 1, testserver.RedisOptions{})[0]
	address := chaos.StartProxy(t, before.Addr)
	groups := startGroups(t, url(address.Addr))
	for _, g := range groups {
		g.tell("served")
	}
	now.Follow("")
	address.Redirect(now.Addr)
	lateGrants(groups)
	witness := open(t, address.Addr)
	if v := witness.Caps().Guarantees.Faults[driver.Failover]; v.Exclusion != driver.Breaks || !strings.Contains(v.Note, "old primary") {
		t.Errorf("the driver says of %q: %+v", driver.Failover, v)
	}
	believers(witness, groups)

	before.Follow(now.Addr)
	dropLate(groups)
	for _, g := range groups {
		r := g.tell("served")
		lost := g.settled(witness)
		overlaps, shortLost := g.judge(!g.replicated())
		t.Logf("%s: all were served twice within %v; of 100 leases %d were lost, and of short ones %d; %d overlaps", g.name, r.Took.Round(time.Millisecond), lost, shortLost, overlaps)
	}
	for _, g := range groups {
		g.tell("end")
	}
}
