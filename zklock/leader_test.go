package zklock

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	if c.wire.Leaderless {
		t.Error("P1: the leader takes clients, and the client is at any server")
	}
	release(t, c, take(t, c, request("reached")))
}

// TestLeaderFoundLater: no server led while the client was opened. The next session is at the leader, once there is one.
func TestLeaderFoundLater(t *testing.T) {
	t.Parallel()
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, Members: 3})}
	leader, other := x.Leader(), x.Followers()[0]
	var serves atomic.Bool
	c := x.openWith(t, Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == leader.Addr && !serves.Load() {
			addr = other.Addr // it does not lead, as far as the client can see
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}})
	if !c.wire.Leaderless {
		t.Fatal("no server led, and the client is at a leader")
	}
	at := func(ttl time.Duration) bool {
		r := request("later" + ttl.String())
		r.TTL = ttl
		g := take(t, c, r)
		defer release(t, c, g)
		return c.known(r.Name, r.Owner).keeper.session.AnyServer()
	}
	if !at(time.Second) {
		t.Error("without a leader a session is at one")
	}
	serves.Store(true)
	if at(2 * time.Second) {
		t.Error("P1: the leader takes clients now, and a new session does not look for it")
	}
}
