//go:build soak && linux

package main

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedisSentinel: a job goes on, and the next one waits for it, while the server that has its lock is
// killed and a replica takes over.
func TestRedisSentinel(t *testing.T) {
	s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_STORE=redis+sentinel://"+s.Addrs()+"/"+testserver.PrimaryName)
	survives(w, func() {
		s.Servers[0].Kill()
		awaits(w, "jobs/b", func() { s.AwaitPrimary(s.Servers[0]) })
	})
	w.run(69, "--store", "redis+sentinel://"+s.Addrs()+"/other", "run", "a", "--", "true").expectErr("No such master")
	w.run(64, "--store", "redis+sentinel://"+s.Addrs(), "run", "a", "--", "true").expectErr("does not name the primary")
}

// awaits runs a job with -w while nobody has taken over yet.
func awaits(w *world, name string, takesOver func()) {
	w.t.Helper()
	patient := w.start("run", "-w", "1m", name, "--", "echo", "patient")
	takesOver()
	patient.ends(0)
	patient.expectOut("patient")
}

// survives runs a job and one that waits for it, and lets a fail-over happen meanwhile.
func survives(w *world, failover func()) {
	w.t.Helper()
	end := w.hold("jobs/a", "--note", "the first")
	waiter := w.start("run", "jobs/a", "--", "echo", "done")
	w.awaitQueue("jobs/a", 1)
	failover()
	w.run(0, "show", "jobs/a").expectOut("the first")
	end()
	waiter.ends(0)
	waiter.expectOut("done")
	w.run(0, "ls")
}
