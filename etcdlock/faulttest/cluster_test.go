//go:build soak

package faulttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// cluster is three members, and what operators know of them.
type cluster struct {
	testing.TB
	*testserver.Etcd
	etcd *clientv3.Client
}

func startCluster(t testing.TB, o testserver.EtcdOptions) *cluster {
	t.Helper()
	o.Members, o.Between = 3, true
	e := testserver.StartEtcd(t, o)
	return &cluster{t, e, dial(t, e.Addrs())}
}

// leader returns which member leads, by what another says, and its id.
func (c *cluster) leader(except int) (int, uint64) {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		led := uint64(0)
		ids := map[uint64]int{}
		for i, m := range c.Members {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s, err := c.etcd.Status(ctx, m.Addr)
			cancel()
			if err == nil {
				ids[s.Header.MemberId] = i
				if i != except {
					led = s.Leader
				}
			}
		}
		if i, ok := ids[led]; ok && i != except {
			return i, led
		}
	}
	c.Fatal("no leader within 30 s")
	return 0, 0
}

// cutOff lets nothing from and to a member pass: others reach it through its
// proxy, and it says in each request to another who it is.
func (c *cluster) cutOff(member int, id uint64) {
	for i, m := range c.Members {
		only := ""
		if i != member {
			only = fmt.Sprintf("X-Server-From: %x", id)
		}
		m.Peers.Hold(chaos.ToServer, only)
		m.Peers.Hold(chaos.ToClient, only)
	}
}

func (c *cluster) heal() {
	for _, m := range c.Members {
		m.Peers.Heal()
	}
}

// TestCluster does to three members what can happen to them. TTLs are so long
// that no lease may be lost: a majority is always there.
func TestCluster(t *testing.T) {
	c := startCluster(t, testserver.EtcdOptions{Election: quick})
	for _, fault := range []struct {
		name  string
		spoil func()
	}{
		{"a follower is killed", func() {
			leader, _ := c.leader(-1)
			m := c.Members[(leader+1)%3]
			m.Kill()
			time.Sleep(quick)
			m.Start()
		}},
		{"the leader is killed", func() {
			leader, _ := c.leader(-1)
			c.Members[leader].Kill()
			c.leader(leader)
			c.Members[leader].Start()
		}},
		{"the leader stands still", func() {
			leader, _ := c.leader(-1)
			c.Members[leader].Pause()
			c.leader(leader)
			time.Sleep(2 * quick)
			c.Members[leader].Resume()
		}},
		{"the leader is cut off", func() {
			leader, id := c.leader(-1)
			c.cutOff(leader, id)
			c.leader(leader)
			time.Sleep(2 * quick)
			c.heal()
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			faults.Under(t, faults.Harness{URL: url}, c.Addrs(), 12*time.Second, fault.spoil)
		})
	}
}
