//go:build soak && linux

package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestZooKeeperRefusesTheUser: a wrong password is the store's answer, as with every other store, and no wrong usage.
func TestZooKeeperRefusesTheUser(t *testing.T) {
	w := newWorld(t)
	addrs := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()
	w.run(0, "--store", "zk://app:"+escapedPassword+"@"+addrs+"/app", "ls")
	for _, args := range [][]string{{"ls"}, {"run", "x", "--", "true"}, {"run", "-n", "x", "--", "true"}} {
		p := w.run(69, append([]string{"--store", "zk://app:wrong@" + addrs + "/app"}, args...)...)
		p.expectErr("not permitted")
		p.hidesPassword()
	}
}

// TestZooKeeperHasTooManyConnections: many processes, and others, take all connections that the server has for a host.
// Each process of run waits for its turn, without -w too.
func TestZooKeeperHasTooManyConnections(t *testing.T) {
	w := newWorld(t)
	const most = 12
	addr := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{MaxClientConns: most}).Addrs()
	w.env = append(w.env, "HOLDFAST_STORE=zk://"+addr)
	w.run(0, "ls")
	var others []net.Conn
	for range most {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		others = append(others, nc)
	}
	first := w.start("run", "first", "--", "true")
	time.Sleep(time.Second) // proves nothing, and lets it be refused
	for _, nc := range others {
		nc.Close()
	}
	first.ends(0)
	var all []*process
	for i := range 15 {
		all = append(all, w.start("run", fmt.Sprint("jobs/", i), "--", "true"))
	}
	for _, p := range all {
		p.ends(0)
	}
}
