package zklock

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestLeaderOutOfReach: while a client is opened the leader cannot be reached. Others answer, and would answer for the
// leader for good: the client does not settle for them.
func TestLeaderOutOfReach(t *testing.T) {
	t.Parallel()
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, Members: 3, Between: true})}
	leader := x.Leader()
	config := Config{Servers: strings.Split(x.Addrs(), ",")}
	leader.Clients.Cut()
	if d, err := New(t.Context(), config); err == nil {
		d.Close()
		t.Errorf("P1: a client was opened, although the leader could not be reached")
	} else if !strings.Contains(err.Error(), leader.Addr) {
		t.Errorf("the error does not name the server that cannot be reached: %v", err)
	}
	leader.Clients.Heal()
	c := x.open(t)
	if c.anyServer {
		t.Error("P1: the leader takes clients, and the client is at any server")
	}
	release(t, c, take(t, c, request("reached")))
}
