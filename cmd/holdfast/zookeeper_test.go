//go:build soak && linux

package main

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestZooKeeper runs all commands on a ZooKeeper server, as an operator does.
func TestZooKeeper(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=zk://app:"+escapedPassword+"@"+server.Addrs()+"/app/locks")
	w.operate()
	server.Members[0].Kill()
	w.run(69, "ls").hidesPassword()
	w.run(1, "doctor").hidesPassword()
	w.run(69, "run", "x", "--", "true").expectErr("connection refused")
}
