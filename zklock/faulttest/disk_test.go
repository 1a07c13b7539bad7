//go:build soak

package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestDiskFull fills the disks of servers under load. A server that cannot write its log serves nobody any
// more; a follower stays and tries to rejoin, a leader's process ends. No lease is lost whose TTL outlasts
// that, and everybody is served when a majority has room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick, MaxSession: time.Minute})
	const full = 500 * time.Millisecond // for how long, at least
	c := client(t, z.Addrs())
	for _, fault := range []struct {
		name  string
		spoil func(t *testing.T)
	}{
		{"of a follower", func(t *testing.T) {
			m := z.Followers()[0]
			m.FillDisk()
			awaitMute(t, m)
			time.Sleep(full)
			m.Kill()
			m.Start()
		}},
		{"of the leader", func(t *testing.T) {
			m := z.Leader()
			m.FillDisk()
			z.NewLeader(m)
			time.Sleep(full)
			m.Kill()
			m.Start()
		}},
		{"of all", func(t *testing.T) {
			for _, m := range z.Members {
				m.FillDisk()
			}
			awaitMute(t, z.Members...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if lease, err := c.Mutex("free", nil).Acquire(ctx); err == nil {
				t.Errorf("P1: granted though no server can write: %v", lease)
			} else {
				says(t, "acquire", err, z)
			}
			for _, m := range z.Members {
				m.Kill()
			}
			for _, m := range z.Members {
				m.Begin()
			}
			z.Leader()
		}},
		// The last one: what this server has on its disk is not enough to start from. See the guarantees.
		{"of a follower, until there is room", func(t *testing.T) {
			m := z.Followers()[0]
			m.FillDisk()
			awaitMute(t, m)
			time.Sleep(full)
			m.MakeRoom()
			for end := time.Now().Add(30 * time.Second); m.Mode() == ""; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the server does not rejoin")
				}
			}
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			faults.Under(t, faults.Harness{URL: url}, z.Addrs(), 20*time.Second, func(steady *holdfast.Lease) {
				fault.spoil(t)
				outlives(t, steady)
			})
		})
	}
}

// awaitMute waits until no server of these serves any more.
func awaitMute(t *testing.T, members ...*testserver.ZooKeeperMember) {
	t.Helper()
	for _, m := range members {
		for end := time.Now().Add(30 * time.Second); m.Mode() != ""; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a server whose disk is full serves on")
			}
		}
	}
}
