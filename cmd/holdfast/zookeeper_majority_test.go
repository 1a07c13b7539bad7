//go:build soak && linux

package main

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestZooKeeperMajority: two of three servers have died. Who does not wait is told what each server said, who
// waits gets the lock when a majority is there again, and a command that runs is ended when its hold is.
func TestZooKeeperMajority(t *testing.T) {
	w := newWorld(t)
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: 500 * time.Millisecond})
	w.env = append(w.env, "HOLDFAST_STORE=zk://"+z.Addrs())
	w.run(0, "run", "x", "--", "true")
	leader := z.Leader()
	dead := []*testserver.ZooKeeperMember{leader, z.Followers()[0]}
	running := w.start("run", "--ttl", "2s", "running", "--", "sh", "-c", "echo begun; exec sleep 1000")
	running.awaitOutput("begun")
	waiter := w.start("run", "--ttl", "2s", "running", "--", "echo", "got it")
	w.awaitQueue("running", 1)
	for _, m := range dead {
		m.Kill()
	}
	running.ends(76)
	patient := w.start("run", "-w", "1m", "x", "--", "echo", "patient")
	for _, p := range []*process{w.start("run", "-n", "x", "--", "true"), w.start("ls")} {
		p.ends(69)
		p.expectErr("not serving requests")
		for _, m := range z.Members {
			p.expectErr(m.Addr + ": ")
		}
	}
	for _, m := range dead {
		m.Begin()
	}
	patient.ends(0)
	patient.expectOut("patient")
	waiter.ends(0)
	waiter.expectOut("got it")
}
