//go:build soak && linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestZooKeeper runs all commands on a ZooKeeper server, as an operator does.
func TestZooKeeper(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=zk://app:"+escapedPassword+"@"+server.Addrs()+"/app/locks")
	w.run(0, "ls").hidesPassword()
	end := w.hold("jobs/a", "--note", "the first")
	p := w.run(75, "run", "-n", "jobs/a", "--", "touch", w.path("never"))
	p.expectErr(`lock "jobs/a" is held by another ("the first"`)
	if _, err := os.Stat(w.path("never")); err == nil {
		t.Error("the command ran beside another")
	}
	waiter := w.start("run", "jobs/a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN $HOLDFAST_SEQUENCER")
	w.awaitQueue("jobs/a", 1)
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"show", "jobs/a"}, {"show", "jobs/a", "-o", "json"}} {
		p := w.run(0, args...)
		p.hidesPassword()
		p.expectOut("the first")
	}
	end()
	waiter.ends(0)
	waiter.hidesPassword()
	waiter.expectOut("hf1:x:")

	endShared := w.hold("shared", "--shared")
	w.run(0, "run", "-n", "--shared", "shared", "--", "true")
	w.run(75, "run", "-n", "shared", "--", "true")
	endSlots := w.hold("slots", "--slots", "2")
	w.run(0, "run", "-n", "--slots", "2", "slots", "--", "true")
	w.run(64, "run", "-n", "--slots", "3", "slots", "--", "true").hidesPassword()
	endShared()
	endSlots()
	w.run(0, "run", "a", "--", "holdfast", "run", "-n", "a", "--", "true") // nested: joins

	elected := w.start("elect", "--once", "office", "--", "sleep", "1000")
	await(t, "a leader", func() bool { return w.leader("office") != "" })
	w.breakLock("office")
	elected.ends(76)

	w.run(0, "doctor").expectOut("leads and takes clients")
	w.run(0, "doctor", "-o", "json").hidesPassword()
	server.Members[0].Kill()
	w.run(69, "ls").hidesPassword()
	w.run(1, "doctor").hidesPassword()
	if p := w.run(69, "run", "x", "--", "true"); !strings.Contains(p.err.String(), "connection refused") {
		t.Errorf("a server that has ended: %s", p.err.String())
	}
}
